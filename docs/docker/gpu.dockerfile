# ppocr-ext on a GPU. In the folder of the clone, for CUDA 12.6 and 12.9:
#   docker build -f docs/docker/gpu.dockerfile -t ppocr-ext:cu126 .
#   docker build -f docs/docker/gpu.dockerfile -t ppocr-ext:cu129 --build-arg CUDA=12.9.1 --build-arg PADDLE=cu129 .
# Paddle's packages bring CUDA's libraries. The base image only says which driver it needs.
ARG CUDA=12.6.3
FROM nvidia/cuda:${CUDA}-base-ubuntu22.04
ARG PADDLE=cu126

# OpenCV loads libgl1 and libglib2.0-0, Paddle loads libgomp1.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv libgl1 libglib2.0-0 libgomp1 \
    && rm -rf /var/lib/apt/lists/*

ENV PATH=/opt/venv/bin:$PATH
RUN python3 -m venv /opt/venv \
    && pip install --no-cache-dir "paddlepaddle-gpu>=3,<4" -i https://www.paddlepaddle.org.cn/packages/stable/${PADDLE}/

COPY setup.py pyproject.toml README.md LICENSE /src/
COPY configs /src/configs
COPY ppocr_ext /src/ppocr_ext
RUN pip install --no-cache-dir "/src[gpu,quickstart,onnx]"

WORKDIR /work
ENTRYPOINT ["ppocr-ext"]
