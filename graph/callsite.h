// Where the user's program called the API: kept beside nodes, never in their identity.
#pragma once

#include <string>

namespace tessera {

struct CallSite {
  const char* file;
  int line;
  // By name alone: no braces in a call make one, whatever they were meant for.
  struct Made {};
  CallSite(Made, const char* f, int l) : file(f), line(l) {}
  static CallSite Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return CallSite(Made(), file, line);
  }
  std::string ToString() const;  // "mlp.cc:12"
};

// While one lives, nodes made by this thread carry its call site; the outermost one counts.
class CallScope {
 public:
  explicit CallScope(CallSite site);
  ~CallScope();
  CallScope(const CallScope&) = delete;

 private:
  bool outermost_;
};

// While one lives, scopes begin anew: what a user's function calls is called there.
class CallPause {
 public:
  CallPause();
  ~CallPause();
  CallPause(const CallPause&) = delete;

 private:
  CallSite site_;
  bool active_;
};

// The call site of the outermost scope of this thread, interned; null outside any.
const CallSite* CurrentCallSite();

}  // namespace tessera
