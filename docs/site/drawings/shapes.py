"""What drawings are made of: SVG for light and dark pages, with a colour for each device."""
import html
import re

DEVICES = ["#9db8dc", "#f0b878", "#a3d0a8", "#d3a6cf", "#e2d58b", "#8fd0cf", "#e3a59a", "#b9b9e6"]  # a colour each
LINES = ["#3b6fb6", "#d97a1f", "#3f9a4b", "#b0479a", "#8a6d3b"]
STYLE = ("<style>.sb .paper{fill:#fff}.sb text{fill:#24292f}.sb .soft{fill:#57606a}.sb .edge{stroke:#57606a}"
         ".sb .grid{stroke:#d0d7de}.sb .same{fill:#d0d7de}"
         "@media(prefers-color-scheme:dark){.sb .paper{fill:#0d1117}.sb text{fill:#e6edf3}.sb .soft{fill:#9198a1}"
         ".sb .edge{stroke:#9198a1}.sb .grid{stroke:#3d444d}.sb .same{fill:#8b949e}}.sb .on{fill:#1f2328}</style>")


def svg(width, height, parts, what):
    """A drawing on paper of its own, so that it can be read on any page."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="sb" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="Helvetica, Arial, sans-serif" '
            f'font-size="12"><title>{html.escape(what)}</title>{STYLE}'
            f'<rect class="paper" width="100%" height="100%" rx="6"/>\n' + "\n".join(parts) + "\n</svg>\n")


def text(x, y, words, anchor="middle", kind="", size=12):
    """Words at a place. `kind`: soft, or on (a colour)."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"' + (f' class="{kind}"' if kind else "") +
            (f' font-size="{size}"' if size != 12 else "") + f'>{html.escape(words)}</text>')


def width_of(words, size=12):
    """About how wide words are."""
    return 0.58 * size * len(words)


def box(x, y, width, height, colour=""):
    """A part of a tensor: in the colour of the device that holds it, or gray, the same on every device."""
    fill = f'fill="{colour}" class="edge"' if colour else 'class="same edge"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {fill} stroke-width="0.8"/>'


def of_device(device, x, y, width, height, words=None):
    """A device's part, with its number where there is room."""
    words = str(device) if words is None else words
    parts = [box(x, y, width, height, DEVICES[device % len(DEVICES)])]
    if width >= width_of(words, 11) + 2 and height >= 11:
        parts.append(text(x + width / 2, y + height / 2 + 4, words, kind="on", size=11))
    return parts


def arrow(x, y, width, words):
    """An arrow to the right, below its words."""
    return [text(x + width / 2, y - 7, words, kind="soft", size=11),
            f'<path d="M{x:.1f} {y:.1f}h{width - 1:.1f}m-6 -4l6 4l-6 4" fill="none" class="edge"/>']


def legend(x, y, devices, same=True):
    """Which colour is which device."""
    parts = []
    for device in range(devices):
        parts += [box(x, y - 9, 11, 11, DEVICES[device % len(DEVICES)]),
                  text(x + 15, y, f"device {device}" if device == 0 else str(device), "start", "soft", 11)]
        x += 70 if device == 0 else 32
    if same:
        parts += [box(x + 6, y - 9, 11, 11), text(x + 22, y, "the same on every device", "start", "soft", 11)]
    return parts


def last_block(above):
    """The block of output that stands last on the page above the drawing."""
    return re.findall(r"^```\w*\n(.*?)^```", above, re.MULTILINE | re.DOTALL)[-1]
