"""Read folders of labelled images in the formats of labelling tools and datasets; no Paddle."""
