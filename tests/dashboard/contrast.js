/**
 * Texts whose contrast with their background is below WCAG AA: 4.5, or 3 for large text; and lines of diagrams below 3,
 * without those to a cancelled status, which are faint. The test evaluates this file and calls the function.
 */
function lowContrastTexts() {
  /** @typedef {number[]} Colour red, green, blue from 0 to 255, and alpha from 0 to 1 */

  /**
   * @param {string} css
   * @returns {Colour}
   */
  const parse = (css) => (css.match(/[\d.]+/g) ?? []).map(Number);

  /** Relative luminance. @param {Colour} colour */
  const luminance = (colour) =>
    colour.slice(0, 3)
      .map((channel) => channel / 255)
      .map((channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4))
      .reduce((sum, channel, index) => sum + channel * [0.2126, 0.7152, 0.0722][index], 0);

  /**
   * @param {Colour} top
   * @param {Colour} below
   */
  const blend = (top, below) => {
    const alpha = top[3] ?? 1;
    return [0, 1, 2].map((index) => top[index] * alpha + below[index] * (1 - alpha));
  };

  /** @param {Element} node */
  const background = (node) => {
    const layers = [];
    for (let parent = /** @type {Element | null} */ (node); parent; parent = parent.parentElement) {
      const colour = parse(getComputedStyle(parent).backgroundColor);
      layers.push(colour);
      if ((colour[3] ?? 1) === 1) break;
    }
    return layers.reverse().reduce((below, top) => blend(top, below), [255, 255, 255]);
  };

  /**
   * @param {Colour} front
   * @param {Colour} behind
   */
  const contrast = (front, behind) => {
    const [high, low] = [luminance(front), luminance(behind)].sort((first, second) => second - first);
    return (high + 0.05) / (low + 0.05);
  };

  /** @type {Set<string>} */
  const findings = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = (walker.currentNode.nodeValue ?? "").trim();
    const node = walker.currentNode.parentElement;
    if (!text || !node?.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (node.closest("script, .visually-hidden, [disabled], svg, option, noscript")) continue;
    const style = getComputedStyle(node);
    const behind = background(node), size = parseFloat(style.fontSize);
    const ratio = contrast(blend(parse(style.color), behind), behind);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) {
      findings.add(`${ratio.toFixed(2)} ${node.tagName}.${node.className}: ${text.slice(0, 40)}`);
    }
  }
  for (const line of document.querySelectorAll(".diagram .edge:not(.cancel) path")) {
    const style = getComputedStyle(line), behind = background(line);
    const colour = [...parse(style.stroke).slice(0, 3), Number(style.opacity)];
    const ratio = contrast(blend(colour, behind), behind);
    if (ratio < 3) findings.add(`${ratio.toFixed(2)} line of a diagram`);
  }
  return [...findings];
}
