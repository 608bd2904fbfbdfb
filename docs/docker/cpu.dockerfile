# ppocr-ext on a CPU. In the folder of the clone:
#   docker build -f docs/docker/cpu.dockerfile -t ppocr-ext .
FROM python:3.11-slim-bookworm

# OpenCV loads libgl1 and libglib2.0-0, Paddle loads libgomp1.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 libgomp1 \
    && rm -rf /var/lib/apt/lists/*

COPY setup.py pyproject.toml README.md LICENSE /src/
COPY configs /src/configs
COPY ppocr_ext /src/ppocr_ext
RUN pip install --no-cache-dir "/src[cpu,quickstart,onnx]"
RUN ppocr-ext doctor

WORKDIR /work
ENTRYPOINT ["ppocr-ext"]
