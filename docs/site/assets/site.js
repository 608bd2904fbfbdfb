// A table that is wider than the page must be reachable by keyboard, so that the arrow keys can scroll it.
const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
});
document$.subscribe(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) observer.observe(table);
});
