// explain: one expression through all stages, from its tensor graph to the text that is compiled.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "graph/buffer.h"
#include "graph/error.h"
#include "graph/flags.h"
#include "graph/rewrite.h"
#include "graph/spec.h"
#include "graph/tensor.h"
#include "graph/text.h"
#include "runtime/runtime.h"

namespace tessera {
namespace {

constexpr char kUsage[] =
    "usage: tools/explain [--stage tensor|plan|kernel|program|text]... [--prelude] NAME|FILE\n"
    "       tools/explain --flags, which lists the environment flags\n"
    "Shows what becomes of an expression: its tensor graph, the plan that would run, and each\n"
    "distinct kernel in index form, as statements, and as C++ text. Nothing is compiled or run.\n"
    "FILE holds a tensor graph in text form (graph/text.h); '-' is the standard input. NAME is "
    "one\n"
    "of:\n";

struct Named {
  const char* name;
  const char* what;
  std::function<Tensor()> make;
};

// An input whose contents do not matter.
Tensor In(const Dims& dims, DType dtype = kFloat32) { return Tensor::Empty(dims, dtype, "CPU"); }

const std::vector<Named>& Expressions() {
  static const std::vector<Named>& list = *new std::vector<Named>{
      {"add", "a + b, with b broadcast",
       [] {
         return In({64, 256}) + In({256});
       }},
      {"chain", "(x * 2 - 3).Relu().Square()",
       [] {
         return (In({64, 256}) * 2 - 3).Relu().Square();
       }},
      {"sum", "x.Sum()",
       [] {
         return In({1024, 1024}).Sum();
       }},
      {"softmax", "x.Softmax()",
       [] {
         return In({64, 256}).Softmax();
       }},
      {"rmsnorm", "x.RmsNorm(w)",
       [] {
         return In({64, 256}).RmsNorm(In({256}));
       }},
      {"matmul", "a.MatMul(b)",
       [] {
         return In({256, 512}).MatMul(In({512, 256}));
       }},
      {"linear", "x.Linear(w, bias).Relu()",
       [] {
         return In({64, 256}).Linear(In({128, 256}), In({128})).Relu();
       }},
      {"transpose", "x.T().Contiguous()",
       [] {
         return In({64, 256}).T().Contiguous();
       }},
      {"embedding", "table.Embedding(index)",
       [] {
         return In({1000, 64}).Embedding(In({8}, kInt32));
       }},
      {"attention", "q.ScaledDotProductAttention(k, v)",
       [] {
         return In({8, 16, 64}).ScaledDotProductAttention(In({8, 32, 64}), In({8, 32, 64}));
       }},
      {"conv", "x.Conv2d(w)",
       [] {
         return In({1, 3, 32, 32}).Conv2d(In({8, 3, 3, 3}));
       }},
      {"rand", "Tensor::Rand({4}).Sum()", [] { return Tensor::Rand({4}).Sum(); }},
  };
  return list;
}

[[noreturn]] void Usage(std::ostream& out, int status, const std::string& why = "") {
  if (!why.empty()) out << "tools/explain: " << why << "\n";
  out << kUsage;
  for (const Named& n : Expressions()) {
    out << "  " << n.name << std::string(12 - std::string(n.name).size(), ' ') << n.what << "\n";
  }
  std::exit(status);
}

struct Options {
  std::vector<std::string> stages;  // none: all
  bool prelude = false;
  std::string expression;
  bool Shows(const std::string& stage) const {
    return stages.empty() || std::find(stages.begin(), stages.end(), stage) != stages.end();
  }
};

Options ReadOptions(int argc, char** argv) {
  const std::vector<std::string> known = {"tensor", "plan", "kernel", "program", "text"};
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") Usage(std::cout, 0);
    if (word == "--flags") {
      std::cout << FlagHelp();
      std::exit(0);
    }
    if (word == "--stage") {
      const std::string stage = ++i < argc ? argv[i] : "";
      if (std::find(known.begin(), known.end(), stage) == known.end()) {
        Usage(std::cerr, 2, "'" + stage + "' is no stage");
      }
      out.stages.emplace_back(argv[i]);
    } else if (word == "--prelude") {
      out.prelude = true;
    } else if (word.size() > 1 && word[0] == '-') {
      Usage(std::cerr, 2, "'" + word + "' is no option");
    } else if (!out.expression.empty()) {
      Usage(std::cerr, 2, "one expression at a time; got '" + out.expression + "', '" + word + "'");
    } else {
      out.expression = word;
    }
  }
  if (out.expression.empty()) Usage(std::cerr, 2, "no expression is named");
  return out;
}

// The roots of a text, its PARAMs as buffers of their own.
std::vector<UOp> RootsOf(const std::string& text) {
  SpecOptions options;
  options.stage = SpecStage::kTensor;
  const std::vector<Violation> violations = VerifyText(text, options);
  for (const Violation& v : violations) std::cerr << v.line << ": " << v.ToString() << "\n";
  if (!violations.empty()) std::exit(1);
  const std::vector<UOp> roots = ValueOrThrow(Parse(text));
  const auto refuse = [](const UOp& u, const std::string& why) {
    std::cerr << "tools/explain: " << Info(u.op()).text << ": " << why << "\n";
    std::exit(1);
  };
  for (const UOp& u : roots) {
    if (u.dtype().IsVoid()) refuse(u, "is no tensor; return the tensors that are asked for");
  }
  Substitution buffers;
  for (const UOp& u : TopoSort(roots)) {
    if (u.is(Op::kExchange)) {
      refuse(u, "is what the scheduler makes of collectives; write the COPY that it stands for");
    }
    if (!u.is(Op::kParam)) continue;
    const BufferArg arg{std::make_shared<Buffer>(), u.shape().ToExtents(), u.device()};
    buffers.emplace(u, UOp::Make(Op::kBuffer, u.dtype(), {}, arg));
  }
  return Substitute(roots, buffers);
}

std::vector<UOp> Roots(const std::string& expression) {
  for (const Named& n : Expressions()) {
    if (expression == n.name) return {n.make().uop()};
  }
  std::ostringstream text;
  if (expression == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream file(expression);
    if (!file) Usage(std::cerr, 2, "'" + expression + "' is no expression and no file");
    text << file.rdbuf();
    if (text.str().empty()) Usage(std::cerr, 2, "'" + expression + "' is empty, or no file");
  }
  return RootsOf(text.str());
}

int Main(int argc, char** argv) {
  const Options options = ReadOptions(argc, argv);
  const std::vector<UOp> roots = Roots(options.expression);
  if (options.Shows("tensor")) std::cout << "; ---- tensor graph\n" << Print(roots) << "\n";
  if (options.Shows("plan")) {
    const std::vector<Tensor> tensors(roots.begin(), roots.end());
    std::cout << "; ---- plan\n" << Explain(tensors) << "\n";
  }
  const Plan plan = ValueOrThrow(PlanOnly(roots, MakePlanKey(roots)));
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    const PlanKernel& kernel = plan.kernels[k];
    if (options.Shows("kernel")) {
      std::cout << "; ---- " << kernel.name << ", index form\n"
                << Print({&kernel.graph, 1}) << "\n";
    }
    const auto step = std::find_if(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& s) {
      return s.kind == PlanStep::kKernel && s.kernel == static_cast<int>(k);
    });
    const Place& place = plan.buffers[step->buffers[0]].device.places()[0];
    DeviceRuntime& device = *ValueOrThrow(GetDevice(place));
    const Program program =
        ValueOrThrow(Codegen(kernel.graph, kernel.name, kernel.variables, device.target()));
    if (options.Shows("program")) {
      std::cout << "; ---- " << kernel.name << ", statements\n"
                << Print({&program.statements, 1}) << "\n";
    }
    if (options.Shows("text")) {
      const size_t body = options.prelude ? 0 : program.text.find("RT_KERNEL(" + kernel.name);
      std::cout << "// ---- " << kernel.name << ", C++"
                << (options.prelude ? "" : ", after its prelude") << "\n"
                << program.text.substr(body == std::string::npos ? 0 : body) << "\n";
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::Main(argc, argv);
  } catch (const tessera::Error& e) {
    std::cerr << "tools/explain: " << e.what() << "\n";
    return 1;
  }
}
