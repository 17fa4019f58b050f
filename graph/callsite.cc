// The thread's current call site, and the table that keeps each one once.
#include "graph/callsite.h"

#include <mutex>
#include <utility>

#include "absl/container/node_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "graph/constant_results.h"

namespace tessera {
namespace {

struct ThreadSite {
  CallSite site = CallSite::Here("", 0);
  const CallSite* interned = nullptr;
  bool active = false;
};
thread_local ThreadSite current;

const CallSite* Intern(CallSite site) {
  static std::mutex& mutex = *new std::mutex;
  static auto& table = *new absl::node_hash_map<std::pair<const char*, int>, CallSite>;
  std::lock_guard<std::mutex> lock(mutex);
  return &table.try_emplace({site.file, site.line}, site).first->second;
}

}  // namespace

std::string CallSite::ToString() const {
  absl::string_view name = file;
  if (size_t slash = name.rfind('/'); slash != absl::string_view::npos)
    name.remove_prefix(slash + 1);
  return absl::StrCat(name, ":", line);
}

CallScope::CallScope(CallSite site) : outermost_(!current.active) {
  if (!outermost_) return;
  current.active = true;
  internal::CallBegins();
  if (current.site.file != site.file || current.site.line != site.line) {
    current.site = site;
    current.interned = nullptr;
  }
}

CallScope::~CallScope() {
  if (!outermost_) return;
  internal::CallEnds();
  current.active = false;
}

CallPause::CallPause() : site_(current.site), active_(current.active) { current.active = false; }

CallPause::~CallPause() {
  current.active = active_;
  current.site = site_;
  current.interned = nullptr;
}

const CallSite* CurrentCallSite() {
  if (!current.active) return nullptr;
  if (current.interned == nullptr) current.interned = Intern(current.site);
  return current.interned;
}

}  // namespace tessera
