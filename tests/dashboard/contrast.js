() => {
  // Texts whose contrast with what is behind them is below WCAG AA: 4.5, or 3 for large ones.
  const numbers = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const over = (top, below) => {
    const alpha = top[3] ?? 1;
    return [0, 1, 2].map((index) => top[index] * alpha + below[index] * (1 - alpha));
  };
  const behind = (node) => {
    const layers = [];
    for (let one = node; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      layers.push(colour);
      if ((colour[3] ?? 1) === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (node.closest("script, .unseen, [disabled], svg, option, noscript")) continue;
    const style = getComputedStyle(node);
    const back = behind(node), front = over(numbers(style.color), back);
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${ratio.toFixed(2)} ${node.tagName}.${node.className}: ${walker.currentNode.data.trim().slice(0, 40)}`);
  }
  return [...new Set(poor)];
}
