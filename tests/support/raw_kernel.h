// A kernel of a GPU as text: faults that no graph can be written for.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/prelude.h"
#include "runtime/device.h"
#include "tests/support/check.h"

namespace tessera {

// Two blocks of 32 threads, which run the statement; its one parameter is b0, of f32.
inline Program RawProgram(const std::string& name, const std::string& statement) {
  Program p;
  p.entry = name;
  const std::string body =
      absl::StrCat("RT_GLOBAL(", name, ", 32)(RT_THREAD rt_f32* RT_RESTRICT b0) {\n", statement,
                   "\n}\nRT_ENTRY(", name, ")\n");
  p.text = absl::StrCat(PreludeFor(body, PreludeKind::kCuda), kBodyMark, body);
  p.grid = UOp::Index(2);
  p.threads = 32;
  p.buffers = {0};
  p.statements = UOp::Make(Op::kProgram, {}, Arg(name));
  return p;
}
inline std::shared_ptr<Executable> RawKernel(DeviceRuntime& device, const std::string& name,
                                             const std::string& statement) {
  const Program p = RawProgram(name, statement);
  const auto made = device.Compile({&p, 1});
  CHECK(made.ok(), made.status().ToString());
  return (*made)[0];
}

}  // namespace tessera
