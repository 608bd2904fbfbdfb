"""The style of the report page: system fonts, light and dark, wide and narrow."""

STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1c2430;--soft:#5c6675;--line:#e1e5ea;--grid:#e4e8ed;
--good:#0a7a4b;--good-bg:#dff5ea;--bad:#b3261e;--bad-bg:#fde5e2;--warn:#8a5a00;--warn-bg:#fdf0d3;--calm:#1f5fbf;
--calm-bg:#e2edfd;--run0:#0072b2;--run1:#d55e00;--run2:#009e73;--run3:#c15a94;--run4:#c98a00;--run5:#3f9fd8}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1b212a;--text:#e6eaf0;--soft:#9aa5b4;--line:#2c3440;
--grid:#2d3643;--good:#5fd6a2;--good-bg:#12382a;--bad:#ff9d94;--bad-bg:#44201d;--warn:#f2c063;--warn-bg:#3d2f12;
--calm:#8dbbff;--calm-bg:#1b304f;--run0:#4fa8e8;--run1:#ff8a3d;--run2:#2fc79a;--run3:#e593c0;--run4:#f0b440;
--run5:#8ad0f5}}
.r0{--c:var(--run0)}.r1{--c:var(--run1)}.r2{--c:var(--run2)}.r3{--c:var(--run3)}.r4{--c:var(--run4)}
.r5{--c:var(--run5)}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 40px}
h1{font-size:26px;line-height:1.25;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:18px;margin:34px 0 12px}
h3{font-size:15px;margin:0;font-weight:600;overflow-wrap:anywhere}
.sub,.soft{color:var(--soft)}.sub{margin:4px 0 20px}.small{font-size:13px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;min-width:0}
.grid2{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr))}
.wide{grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.name{display:flex;align-items:center;gap:9px;min-width:0}
.swatch{flex:none;width:22px;height:4px;border-radius:2px;overflow:visible}
.swatch path{stroke:var(--c);stroke-width:4;fill:none}
.badge{flex:none;font-size:12px;font-weight:600;padding:1px 9px;border-radius:99px;background:var(--line);
color:var(--soft)}
.finished{background:var(--good-bg);color:var(--good)}.failed{background:var(--bad-bg);color:var(--bad)}
.stopped{background:var(--warn-bg);color:var(--warn)}.running{background:var(--calm-bg);color:var(--calm)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(144px,1fr));gap:14px 20px;margin:16px 0 4px}
.figures div{min-width:0}
.figures b{display:block;font-size:24px;white-space:nowrap;line-height:1.2;font-weight:650;
font-variant-numeric:tabular-nums}
.figures span{color:var(--soft);font-size:13px}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:3px 14px;margin:12px 0 0;font-size:13.5px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.note{background:var(--warn-bg);color:var(--warn)}
.note.failed{background:var(--bad-bg);color:var(--bad)}
.note{margin:12px 0 0;padding:7px 11px;border-radius:7px;font-size:13.5px;
overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:6px 22px;margin:0 0 12px;font-size:14px}
svg{display:block;width:100%;height:auto}
figure{margin:0}figcaption{font-weight:600;margin:0 0 6px}
.grid{stroke:var(--grid);fill:none}.axis{stroke:var(--soft);fill:none;opacity:.6}
.tick{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
.line{stroke:var(--c);stroke-width:2;fill:none;stroke-linejoin:round;stroke-linecap:round}
.faint{stroke:var(--c);stroke-width:.8;fill:none;opacity:.32;stroke-linejoin:round}
.dot{fill:var(--c)}.best{fill:var(--card);stroke:var(--c);stroke-width:2}
.scroll{overflow:auto;max-height:440px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500;font-size:13px;position:sticky;top:0;background:var(--card)}
th:first-child,td:first-child,.left th,.left td{text-align:left}
tr:last-child td{border-bottom:0}
.top td{font-weight:650;background:var(--good-bg);color:var(--good)}
.wrap td{white-space:normal;overflow-wrap:anywhere;vertical-align:top}
.wrap td:first-child{min-width:200px}.wrap td{min-width:110px}
details{margin-top:10px}summary{cursor:pointer;color:var(--soft);font-size:14px}
pre{margin:10px 0 0;padding:12px;background:var(--bg);border-radius:8px;overflow:auto;max-height:520px;font:12.5px/1.5
ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.samples{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(min(100%,166px),1fr));margin-top:12px}
.long{grid-template-columns:repeat(auto-fill,minmax(min(100%,310px),1fr))}
.sample{border:1px solid var(--line);border-radius:8px;overflow:hidden;background:var(--card);font-size:14px}
.sample img{display:block;width:100%;height:64px;object-fit:contain;background:#8882;padding:6px}
.sample div{padding:7px 10px 9px}
.sample dl{margin:0;gap:0 9px;font-size:13.5px}
.sample dd{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Noto Sans Mono CJK SC",monospace;
white-space:pre-wrap;unicode-bidi:isolate}
.sample .sure{font-family:inherit}
.glyphs{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Noto Sans Mono CJK SC",monospace;font-size:16px}
.wrong{border-left:3px solid var(--bad)}.right{border-left:3px solid var(--good)}
ins,del{text-decoration:none;font-weight:700;border-radius:3px}
ins{background:var(--bad-bg);color:var(--bad)}del{background:var(--warn-bg);color:var(--warn)}
footer{margin-top:36px;color:var(--soft);font-size:13px}
@media(max-width:560px){
main{padding:18px 12px 28px}h1{font-size:21px}.card{padding:13px}th,td{padding:6px 7px}table{font-size:13px}
.samples:not(.long){grid-template-columns:repeat(2,minmax(0,1fr))}.figures b{font-size:22px}
.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media print{body{background:#fff}.scroll,pre{max-height:none}}
"""
