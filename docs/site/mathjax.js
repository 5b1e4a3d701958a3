// Formulas as large as the text around them.
MathJax.Hub.Config({ SVG: { scale: 86 }, messageStyle: "none" });
