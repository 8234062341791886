"""The style sheet and the script of the page."""

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1a2129;--soft:#5a6672;--line:#dde2e7;--card:#f6f8fa;--link:#0b62c4;
--good:#1a7f4b;--bad:#c0322b;--warn:#9a5b00;--c0:#2f6fde;--c1:#e0812b;--c2:#2c9c6a;--c3:#b44cc0;--c4:#c9a100;
--c5:#17a2b8;
--c6:#d1495b;--c7:#6f7782;--kept:#2f6fde;--gone:#e0812b}
@media (prefers-color-scheme:dark){:root{--bg:#12161b;--fg:#e3e8ed;--soft:#9aa6b2;--line:#2c343d;--card:#1a2027;
--link:#6cb0ff;--good:#4cc38a;--bad:#ff7a72;--warn:#f0b34a;--c0:#6b9dff;--c1:#f5a15a;--c2:#54c892;--c3:#d484df;
--c4:#e3c84a;
--c5:#4fc9dc;--c6:#f0808e;--c7:#9aa3ad;--kept:#6b9dff;--gone:#f5a15a}}
@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--card:#fff;--link:#000;--good:#1a7f4b;--bad:#b3261e;
--warn:#7a4a00;--c0:#2f6fde;--c1:#e0812b;--c2:#2c9c6a;--c3:#b44cc0;--c4:#c9a100;--c5:#17a2b8;--c6:#d1495b;--c7:#6f7782;
--kept:#2f6fde;
--gone:#e0812b}nav{display:none!important}section{break-inside:auto}figure,.card,tr,h2,h3{break-inside:avoid}
h2,h3{break-after:avoid}svg,i.b,.key i{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:0 20px 48px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.2;margin:28px 0 4px}h2{font-size:19px;margin:36px 0 10px;padding-top:12px;
border-top:1px solid var(--line)}h3{font-size:15px;margin:20px 0 6px}p{margin:6px 0}a{color:var(--link)}
.soft{color:var(--soft)}.small{font-size:13px}
nav{display:flex;flex-wrap:wrap;gap:2px 14px;margin:12px 0;font-size:13px}
.state{display:inline-block;padding:1px 9px;border-radius:10px;font-size:13px;font-weight:600;border:1px solid}
.finished{color:var(--good)}.failed,.killed{color:var(--bad)}.interrupted,.running,.unknown{color:var(--warn)}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin:14px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:8px 12px}
.tile b{display:block;font-size:20px;line-height:1.3}.tile span{font-size:12.5px;color:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{font-weight:600;color:var(--soft);text-align:left;border-bottom:1px solid var(--line);padding:3px 10px 3px 0;
vertical-align:bottom}
td{padding:3px 10px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
.times td:first-child{min-width:150px}.times td.bar{width:110px;min-width:70px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:0 12px}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
td.bar{width:34%;min-width:80px}td.bar svg{display:block;width:100%;height:13px;margin-top:4px}
tr.reason td{border-bottom:0;color:var(--soft);padding-top:1px;
padding-bottom:1px}tr.reason td:first-child{padding-left:18px}
tr.total td{font-weight:600}.funnel td{border-bottom:0;border-top:1px solid var(--line)}
.funnel tr.reason td{border-top:0}
figure{margin:18px 0}figcaption{font-weight:600;font-size:14px;margin-bottom:4px}
.key{font-weight:400;font-size:12.5px;color:var(--soft);display:block}
.key span{margin-right:12px;display:inline-block}.key svg{width:11px;height:11px;margin-right:4px;vertical-align:-1px}
.plot{display:grid;grid-template-columns:auto 1fr;gap:0 8px}
.y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;font-size:11.5px;
color:var(--soft);
font-variant-numeric:tabular-nums;min-width:44px;line-height:1;margin:-5px 0}
.x{grid-column:2;display:flex;justify-content:space-between;font-size:11.5px;color:var(--soft);margin-top:3px;
font-variant-numeric:tabular-nums}
.plot svg{width:100%;height:170px;display:block;border-left:1px solid var(--line);border-bottom:1px solid var(--line);
overflow:visible}
.hist{max-width:640px;margin:8px 0}.hist .plot svg{height:110px}
svg .g{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}
svg .l{fill:none;stroke-width:1.8;vector-effect:non-scaling-stroke;stroke-linejoin:round}
svg .limit{stroke:var(--bad);stroke-width:1.6;stroke-dasharray:5 4;vector-effect:non-scaling-stroke}
svg .mark{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:2 3;vector-effect:non-scaling-stroke}
svg .hit{stroke:transparent;stroke-width:9;vector-effect:non-scaling-stroke}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}
.f6{fill:var(--c6)}.f7{fill:var(--c7)}.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}
.s3{stroke:var(--c3)}
.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}
.kept{fill:var(--kept)}.gone{fill:var(--gone)}.area{opacity:.85}.faint{opacity:.35}
.card{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--c7);border-radius:6px;
padding:8px 12px;margin:8px 0}
.card.problem{border-left-color:var(--bad)}.card.advice{border-left-color:var(--c4)}
.card.note{border-left-color:var(--c0)}
.card b{display:block}.card.kept{border-left-color:var(--kept)}.card.dropped{border-left-color:var(--gone)}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:0 22px}
pre{margin:4px 0 0;white-space:pre-wrap;overflow-wrap:anywhere;
font:12.5px/1.45 ui-monospace,"DejaVu Sans Mono",monospace;
unicode-bidi:plaintext;max-width:100%}
u{text-decoration:none;border:1px solid var(--bad);color:var(--bad);border-radius:3px;font-size:10.5px;padding:0 2px;
unicode-bidi:isolate}
.more{color:var(--soft);font-style:normal}bdi{unicode-bidi:isolate}
.image{display:flex;gap:12px;align-items:flex-start;margin-top:6px}.image figure{margin:0;flex:none;width:112px}
.image img{display:block;max-width:96px;max-height:96px;background:#fff;outline:1px solid var(--line)}
.image figcaption{font-weight:400;margin:4px 0 0}.image .no{color:var(--soft);font-size:12.5px}
details{margin:8px 0}summary{cursor:pointer;color:var(--link)}
ul{margin:6px 0;padding-left:20px}
@media (max-width:560px){body{padding:0 12px 32px;
font-size:14.5px}h1{font-size:22px}.tiles{grid-template-columns:1fr 1fr}
td.bar{min-width:56px;width:22%}th,td{padding-right:7px}.wide{display:none}}
"""

SCRIPT = """
addEventListener("beforeprint",function(){document.querySelectorAll("details").forEach(function(d){d.open=true})});
"""
"""What is folded is printed as well."""
