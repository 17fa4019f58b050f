// A peer that is a Python library: a child process that runs one computation at every call.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace tessera::benchmarks {

class PythonPeer {
 public:
  // The program `python` defines a function step() by this text; null where it cannot, as when the
  // library is not installed. Its step has run once when this returns.
  static std::unique_ptr<PythonPeer> Start(const std::string& python, const std::string& text);
  ~PythonPeer();

  void Step();                                             // runs step() to its end
  const std::string& version() const { return version_; }  // what the text's `version` holds

 private:
  PythonPeer() = default;
  std::string Line();

  pid_t child_ = 0;
  int to_ = -1, from_ = -1;
  std::string version_;
};

}  // namespace tessera::benchmarks
