// The chart as text of SVG.
#include "tools/benchmarks/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace tessera::benchmarks {
namespace {

constexpr int kLine = 22, kTop = 64, kNames = 200, kBars = 420, kWidth = 860;
constexpr double kMost = 8;  // times faster or slower that the scale shows

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

double Place(double ratio) {
  const double at = std::log(std::clamp(ratio, 1 / kMost, kMost)) / std::log(kMost);
  return kNames + kBars * (at + 1) / 2;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         Escaped(text));
}

}  // namespace

std::string Chart(const std::vector<Row>& rows, const std::string& machine) {
  std::string body;
  int y = kTop;
  for (const Row& row : rows) {
    if (!row.ratio()) continue;
    const double one = Place(1), at = Place(*row.ratio());
    absl::StrAppend(&body, Text(kNames - 8, y + 15, "end", row.name));
    absl::StrAppendFormat(&body,
                          "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
                          std::min(one, at), y + 3, std::max(1.0, std::abs(at - one)), kLine - 6,
                          *row.ratio() >= 1 ? "#2a9d8f" : "#e07a5f");
    absl::StrAppend(&body, Text(kNames + kBars + 8, y + 15, "start",
                                absl::StrFormat("%.2f of %s", *row.ratio(), row.peer)));
    y += kLine;
  }
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, y + 16);
  absl::StrAppend(&out, Text(16, 24, "start", absl::StrCat("Speed beside peers; ", machine)),
                  Text(16, 44, "start", "right of the line: faster than the peer"));
  for (const double ratio : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    const double x = Place(ratio);
    absl::StrAppendFormat(&out,
                          "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"%s\"/>\n", x,
                          kTop, x, y, ratio == 1 ? "#333" : "#ddd");
    absl::StrAppend(&out, Text(x, kTop - 4, "middle", absl::StrCat(ratio)));
  }
  return absl::StrCat(out, body, "</svg>\n");
}

}  // namespace tessera::benchmarks
