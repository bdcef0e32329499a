"""The gallery of the site: every method of the build as an interactive page, the one of `hetu simulate METHOD -o x.html`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from make_schedules import plan_of  # noqa: E402

from hetu import schedule  # noqa: E402

HEAD = """# Interactive gallery

This page shows every method as a plan that you can zoom, for a first look and for comparisons. Each frame is the prediction
for 4 workers and 8 micro-batches, as [the page of methods](schedules.md) describes it. Click into a frame. Then point at an
instruction to see its times and inputs. The wheel zooms at the pointer, and a drag moves the plan.

You make such a page for other sizes and costs with:

```bash
hetu simulate zb-h1 --stages 8 --micro-batches 16 --latency 0.3 -o zb-h1.html
```

"""


def pages() -> dict[str, str]:
    """Returns the files of the gallery: gallery.md, and gallery/METHOD.html for each method."""
    files, text = {}, [HEAD]
    for method in schedule.methods():
        name = method["name"]
        files[f"gallery/{name}.html"] = schedule.render(plan_of(method), "html")
        text.append(f"## {name}\n\n{method['doc']} [About it](schedules.md#{name}) · "
                    f"[Open it alone](gallery/{name}.html)\n\n"
                    '<div class="plan" tabindex="0">'
                    f'<iframe loading="lazy" title="{name}" src="gallery/{name}.html"></iframe></div>\n\n')
    files["gallery.md"] = "".join(text)
    return files
