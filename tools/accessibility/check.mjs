// Look at each page of a folder in Chromium: axe-core's rules, sideways scrolling, the keyboard, scripts in texts.
//
//   node tools/accessibility/check.mjs pages [folder for pictures and PDF files]
//
// CHROMIUM names the browser (default: /usr/bin/chromium). The table counts what breaks a rule of axe-core.
// The exit code is 1 if anything was found.
import { mkdirSync, readdirSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import axe from "axe-core";
import { chromium } from "playwright-core";

const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
const WIDTHS = [400, 1200, 2000];
const [folder, pictures] = process.argv.slice(2);
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
let found = 0;

function report(where, text) {
  found += 1;
  console.log(`  ${where}: ${text.slice(0, 160).replaceAll("\n", " ")}`);
}

// Everything that Tab stops at until it leaves the page, or null if it never does.
async function stops(page) {
  const seen = [];
  for (let count = 0; count < 500; count += 1) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => {
      const each = document.activeElement;
      if (each === document.body || each === null) return null;
      const { outlineStyle, outlineWidth } = getComputedStyle(each);
      const place = [...document.querySelectorAll("*")].indexOf(each);
      return { text: each.outerHTML, place, ring: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 };
    });
    if (stop === null) return seen;
    seen.push(stop);
  }
  return null;
}

async function keyboard(page, where) {
  const boxes = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((each) => {
    const { overflowX, overflowY } = getComputedStyle(each);
    const moves = (way, more) => /auto|scroll/.test(way) && more > 1;
    return each.tabIndex < 0 && each.checkVisibility() && (moves(overflowX, each.scrollWidth - each.clientWidth)
      || moves(overflowY, each.scrollHeight - each.clientHeight));
  }).map((each) => each.outerHTML));
  for (const box of boxes) report(where, `scrolls, but Tab does not reach it: ${box}`);
  const seen = await stops(page);
  if (seen === null) return report(where, "Tab does not leave the page");
  for (const stop of seen.filter((each) => !each.ring)) report(where, `no ring: ${stop.text}`);
  if (seen.some((stop, at) => at && stop.place < seen[at - 1].place)) report(where, "Tab goes back");
  const controls = await page.locator("summary,a[href],button,input,select,textarea,[tabindex='0']").count();
  if (seen.length < controls) report(where, `Tab stops at ${seen.length} of ${controls} controls`);
  for (const summary of await page.locator("summary").all()) {
    for (const key of ["Enter", "Space"]) {
      const open = () => summary.evaluate((each) => each.parentElement.open);
      const before = await open();
      await summary.press(key);
      if (before === (await open())) report(where, `${key} does not fold: ${await summary.innerText()}`);
    }
  }
}

console.log(["page", ...WIDTHS.flatMap((width) => [`${width} light`, `${width} dark`])].join("\t"));
for (const file of readdirSync(folder).filter((each) => each.endsWith(".html")).sort()) {
  const row = [basename(file, ".html")];
  for (const width of WIDTHS) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
      const where = `${row[0]}-${width}-${colorScheme}`;
      page.on("request", (each) => each.url().startsWith("http") && report(where, `asks for ${each.url()}`));
      await page.goto(pathToFileURL(resolve(folder, file)).href);
      if (await page.title() === "run") report(where, "a script in a text has run");
      await page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate((values) => axe.run(document, { runOnly: values }), RULES);
      row.push(violations.length);
      for (const { id, nodes } of violations) report(where, `${id}, ${nodes.length} times: ${nodes[0].html}`);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) report(where, `scrolls sideways by ${over} pixels`);
      if (pictures) {
        mkdirSync(pictures, { recursive: true });
        await page.screenshot({ path: join(pictures, `${where}.png`), fullPage: true });
        if (width === 1200) await page.pdf({ path: join(pictures, `${where}.pdf`), format: "A4" });
      }
      if (colorScheme === "light") await keyboard(page, where);
      await page.close();
    }
  }
  console.log(row.join("\t"));
}
await browser.close();
process.exitCode = found ? 1 : 0;
