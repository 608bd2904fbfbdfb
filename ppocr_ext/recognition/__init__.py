"""Read images: decode, resize, engines, CTC decoding, the recogniser."""
