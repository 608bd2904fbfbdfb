"""Give MkDocs the pages that the `nav` of its configuration names, and every file that these pages link to.

The pages stay where GitHub shows them, and MkDocs reads them from there: `docs/data.md` becomes `data/`, and
`docs/zh/data.md` becomes `zh/data/`. The Chinese site has its own pages and its own search. It is built with the
English one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import jieba
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
TABLE_ROW = re.compile(r"^\|.*", re.MULTILINE)
# A fenced block is matched first, so that no link is found in it.
LINK = re.compile(r"^```.*?^```$|\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)


def _pages(nav: object) -> Iterator[str]:
    """Yield the pages that a `nav` names."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(each)


def _url(page: str) -> str:
    """Return the address of a page in its site: the same in both languages."""
    name = Path(page).name.split(".")[0].lower()
    return "" if name == "readme" else f"{name}/"


SITES = [
    yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("mkdocs.yml", "zh.yml")
]
PAGES = {page for site in SITES for page in _pages(site["nav"])}


def on_config(config: MkDocsConfig) -> None:
    """Make the anchors of headings as GitHub does, and keep the search's word splitter quiet."""
    config.mdx_configs["toc"]["slugify"] = lambda text, separator: (
        re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", separator)
    )
    jieba.setLogLevel(logging.WARNING)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages, and the images, configs and other files that they link to."""
    for page in _pages(config.nav):
        files.append(_file(page, config, f"{_url(page)}index.html"))
        for match in LINK.finditer((ROOT / page).read_text(encoding="utf-8")):
            path = _target(page, match)
            if path and path.is_file() and path.suffix != ".md":
                name = path.relative_to(ROOT).as_posix()
                if name not in files.src_uris:
                    files.append(_file(name, config, name))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links between the languages to the other site, and show links to folders as text."""

    def replace(match: re.Match[str]) -> str:
        path = _target(page.file.src_uri, match)
        if path and path.is_dir():
            return match[1]
        name = path.relative_to(ROOT).as_posix() if path else ""
        if name in PAGES and name not in files.src_uris:
            return f'<a href="{_in_other_site(page, config, _url(name))}{match[3] or ""}">{match[1]}</a>'
        return match[0]

    # GitHub needs `\|` for a bar in the code of a table; MkDocs would show the backslash.
    markdown = TABLE_ROW.sub(lambda match: match[0].replace(r"\|", "|"), markdown)
    return LINK.sub(replace, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark an English page of the Chinese site as English."""
    english = config.theme["language"] == "zh" and not page.file.src_uri.startswith(("docs/zh/", "README.zh"))
    return f'<div lang="en">{html}</div>' if english else html


def on_page_context(context: dict, page: Page, config: MkDocsConfig, nav: object) -> None:
    """Let both languages store the choice of light or dark in one place."""
    if config.theme["language"] == "zh":
        config.extra["scope"] = _in_other_site(page, config, "")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Let the language switch lead to the same page in the other language."""
    other = "en" if config.theme["language"] == "zh" else "zh"
    address = _in_other_site(page, config, page.url)
    # With these, the theme's script asks for the sitemap of the other language, which is empty without a site_url.
    output = re.sub(r'<link rel="alternate"[^>]*>', "", output)
    return re.sub(rf'href="[^"]*" hreflang="{other}"', f'href="{address}" hreflang="{other}"', output)


def on_post_build(config: MkDocsConfig) -> None:
    """Build the Chinese site in the folder `zh` of the English one."""
    if config.theme["language"] == "en":
        folder = str(Path(config.site_dir) / "zh")
        file = str(Path(__file__).with_name("zh.yml"))
        build(load_config(file, site_dir=folder, strict=config.strict))


def _in_other_site(page: Page, config: MkDocsConfig, url: str) -> str:
    """Return the address of a page of the other language, seen from `page`."""
    here, there = ("zh/", "") if config.theme["language"] == "zh" else ("", "zh/")
    return get_relative_url(there + url, here + page.url)


def _target(page: str, match: re.Match[str]) -> Path | None:
    """Return the file or folder of the repository that a link of `page` leads to."""
    path = (ROOT / page).parent / match[2] if match[2] else None
    return path.resolve() if path and path.exists() else None


def _file(name: str, config: MkDocsConfig, address: str) -> File:
    return File(
        name,
        str(ROOT),
        config.site_dir,
        config.use_directory_urls,
        dest_uri=address,
        inclusion=InclusionLevel.INCLUDED,
    )
