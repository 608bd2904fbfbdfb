"""A plugin of pytest: with `-p no_bfloat16`, Paddle says that this processor has no bfloat16, as many of AMD."""

import paddle

paddle.base.core.supports_bfloat16_fast_performance = lambda: False  # asked by `has_bfloat16`
paddle.amp.is_bfloat16_supported = lambda device=None: (
    False
)  # asked by `Layer.bfloat16`, which then casts nothing
