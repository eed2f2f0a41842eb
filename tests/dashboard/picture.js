// Reads what the page shows: boxes, lines of text and inline drawings, with their colours. The result is drawn as SVG.
(() => {
  const round = (number) => Math.round(number * 10) / 10;
  const clear = (colour) => colour === "transparent" || /, 0\)$|\/ 0\)$/.test(colour);
  const items = [];
  const inside = (box) =>
    box.width > 0 && box.height > 0 && box.top < innerHeight && box.left < innerWidth && box.bottom > 0;
  const shape = (element) => {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    if (!inside(box) || style.visibility === "hidden" || style.display === "none" || Number(style.opacity) === 0) {
      return;
    }
    const border = parseFloat(style.borderTopWidth) && parseFloat(style.borderLeftWidth) ? style.borderTopColor : "";
    const place = { x: round(box.x), y: round(box.y), width: round(box.width), height: round(box.height) };
    if (!clear(style.backgroundColor) || border) {
      const fill = clear(style.backgroundColor) ? "none" : style.backgroundColor;
      items.push({
        kind: "box",
        ...place,
        fill,
        stroke: border,
        radius: round(Math.min(parseFloat(style.borderRadius) || 0, box.height / 2)),
      });
    } else if (parseFloat(style.borderBottomWidth)) {
      items.push({
        kind: "box",
        ...place,
        y: round(box.bottom),
        height: 1,
        fill: style.borderBottomColor,
        stroke: "",
        radius: 0,
      });
    }
  };
  const text = (node) => {
    const style = getComputedStyle(node.parentElement);
    const range = document.createRange();
    let line = null;
    for (let position = 0; position < node.data.length; position++) {
      range.setStart(node, position);
      range.setEnd(node, position + 1);
      const box = range.getBoundingClientRect();
      if (!inside(box) || style.visibility === "hidden") continue;
      if (!line || Math.abs(line.y - box.y) > 2) {
        line = {
          kind: "text",
          x: round(box.x),
          y: box.y,
          height: round(box.height),
          text: "",
          width: 0,
          fill: style.color,
          size: parseFloat(style.fontSize),
          weight: style.fontWeight,
          mono: /mono/i.test(style.fontFamily.split(",")[0]),
          upper: style.textTransform,
        };
        items.push(line);
      }
      line.text += node.data[position];
      line.width = round(box.right - line.x);
    }
  };
  const drawing = (element) => {
    const box = element.getBoundingClientRect();
    if (!inside(box)) return;
    const copy = element.cloneNode(true);
    const originals = [element, ...element.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
      const style = getComputedStyle(originals[index]);
      for (const name of ["fill", "stroke", "stroke-width", "opacity", "fill-opacity", "font-size", "text-anchor"]) {
        node.setAttribute(name, style.getPropertyValue(name));
      }
      node.removeAttribute("class");
      node.removeAttribute("style");
    });
    copy.setAttribute("x", round(box.x));
    copy.setAttribute("y", round(box.y));
    copy.setAttribute("width", round(box.width));
    copy.setAttribute("height", round(box.height));
    items.push({ kind: "drawing", markup: new XMLSerializer().serializeToString(copy) });
  };
  const control = (element) => {
    shape(element);
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    const shown = element.localName === "select"
      ? element.selectedOptions[0]?.text
      : element.value || element.placeholder;
    if (!shown || !inside(box)) return;
    const width = Math.min(shown.length * parseFloat(style.fontSize) * 0.55, box.width - 20);
    items.push({
      kind: "text",
      x: round(box.x + parseFloat(style.paddingLeft)),
      y: box.y + box.height / 2 - 10,
      height: 20,
      text: shown,
      width: round(width),
      fill: style.color,
      size: parseFloat(style.fontSize),
      weight: style.fontWeight,
      mono: false,
      upper: "",
    });
  };
  const walk = (element) => {
    if (!element.checkVisibility()) return;
    if (element.localName === "svg") return drawing(element);
    if (element.type === "range") return;
    if (["select", "input", "textarea"].includes(element.localName)) return control(element);
    if (element.localName === "img") {
      const box = element.getBoundingClientRect();
      items.push({ kind: "mark", x: round(box.x), y: round(box.y), width: round(box.width) });
      return;
    }
    const style = getComputedStyle(element);
    if (style.display === "none" || style.clipPath !== "none" || Number(style.opacity) === 0) return;
    shape(element);
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE && child.data.trim()) text(child);
      else if (
        child.nodeType === Node.ELEMENT_NODE && !["script", "style", "template", "option"].includes(child.localName)
      ) walk(child);
    }
  };
  walk(document.body);
  return items;
});
