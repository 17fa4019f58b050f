// Parts of tensors as text.
#include "graph/visualize.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/box.h"
#include "graph/infer.h"
#include "graph/tensor_internal.h"

namespace tessera {

std::string VisualizeSharding(const Tensor& tensor) {
  const Device device = tensor.device() ? tensor.device() : internal::DefaultDevice();
  std::string out = absl::StrCat(Describe(tensor.dtype(), tensor.shape(), device), "\n");
  const Boxes boxes = BoxesOf(tensor.shape(), device);
  // Replicas share a line, at the place of the first.
  struct Line {
    std::string places;
    Box box;
  };
  std::vector<Line> lines;
  const absl::Span<const Place> places = device.places();
  for (size_t i = 0; i < places.size(); ++i) {
    const Box box = boxes.At(static_cast<int>(i));
    const auto same =
        std::find_if(lines.begin(), lines.end(), [&box](const Line& l) { return l.box == box; });
    if (same == lines.end()) {
      lines.push_back({places[i].ToString(), box});
    } else {
      absl::StrAppend(&same->places, ", ", places[i].ToString());
    }
  }
  size_t width = 0;
  for (const Line& l : lines) width = std::max(width, l.places.size());
  for (const Line& l : lines) {
    const auto range = [](std::string* o, const Interval& i) {
      absl::StrAppend(o, i.begin, ":", i.end);
    };
    const auto size = [](std::string* o, const Interval& i) { absl::StrAppend(o, i.size()); };
    absl::StrAppend(&out, "  ", l.places, std::string(width - l.places.size(), ' '), "  [",
                    absl::StrJoin(l.box, ", ", range), "]  ", absl::StrJoin(l.box, "x", size),
                    "\n");
  }
  return out;
}

}  // namespace tessera
