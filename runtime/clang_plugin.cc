// In-process Clang as a shared object: C++ text in, object bytes out, with a short pass list.
#include "runtime/clang_plugin.h"

#include <clang/Basic/Version.h>
#include <clang/CodeGen/ModuleBuilder.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#if LLVM_VERSION_MAJOR >= 17
#include <llvm/TargetParser/Host.h>
#else
#include <llvm/Support/Host.h>
#endif
#if LLVM_VERSION_MAJOR >= 16
#include <llvm/TargetParser/Triple.h>
#else
#include <llvm/ADT/Triple.h>
#endif
#include <llvm/MC/TargetRegistry.h>

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#if LLVM_VERSION_MAJOR < 14 || LLVM_VERSION_MAJOR > 22
#error "tessera: the Clang plugin knows LLVM 14 to 22"
#endif

namespace {

constexpr char kFile[] = "kernel.cc";

// What turns straight SSA text with explicit vectors into good code; anything longer costs
// compile time and gains nothing there. Prelude functions are always_inline, and have no variables
// in memory left by then: a kernel of many would have thousands, which take sroa a quarter of the
// time. Blocks are merged before instcombine, which moves what is used in a later block there one
// by one: the loads of a loop would run from high addresses to low, a third of the speed on chips
// that prefetch upward.
#if LLVM_VERSION_MAJOR >= 18
#define TESSERA_INSTCOMBINE "instcombine<no-verify-fixpoint>"
#else
#define TESSERA_INSTCOMBINE "instcombine"
#endif
constexpr char kPipeline[] =
    "function(sroa),always-inline,"
    "function(lower-expect,sroa,simplifycfg,early-cse," TESSERA_INSTCOMBINE
    ",simplifycfg,loop-mssa(licm),early-cse),globaldce";

// Where the fatal-error handler of this thread returns to, and what it leaves there.
struct FatalExit {
  jmp_buf jump;
  std::string reason;
};
thread_local FatalExit* fatal_exit = nullptr;

void OnFatalError(void*, const char* reason, bool) {
  if (fatal_exit == nullptr) return;  // not one of our compiles: LLVM goes on to exit
  fatal_exit->reason = reason;
  longjmp(fatal_exit->jump, 1);
}

void Initialise() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    llvm::install_fatal_error_handler(OnFatalError, nullptr);
  });
}

bool Fill(TesseraBytes* bytes, llvm::StringRef text) {
  bytes->data = static_cast<char*>(std::malloc(text.size() + 1));
  if (bytes->data == nullptr) return false;
  std::memcpy(bytes->data, text.data(), text.size());
  bytes->data[text.size()] = 0;
  bytes->size = text.size();
  return true;
}

#if LLVM_VERSION_MAJOR >= 18
llvm::CodeGenOptLevel CodegenLevel(int opt_level) {
  return opt_level == 0 ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default;
}
constexpr llvm::CodeGenFileType kObjectFile = llvm::CodeGenFileType::ObjectFile;
#else
llvm::CodeGenOpt::Level CodegenLevel(int opt_level) {
  return opt_level == 0 ? llvm::CodeGenOpt::None : llvm::CodeGenOpt::Default;
}
constexpr llvm::CodeGenFileType kObjectFile = llvm::CGFT_ObjectFile;
#endif

// Collects what the back end reports; LLVM's own handler would print it and exit.
class CollectDiagnostics : public llvm::DiagnosticHandler {
 public:
  CollectDiagnostics(llvm::raw_ostream& log, bool& failed) : log_(log), failed_(failed) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    failed_ = true;
    llvm::DiagnosticPrinterRawOStream printer(log_);
    log_ << "error: ";
    info.print(printer);
    log_ << "\n";
    return true;
  }

 private:
  llvm::raw_ostream& log_;
  bool& failed_;
};

std::vector<std::string> FrontendArguments(const TesseraCompileOptions& options) {
  std::vector<std::string> args = {
      "-triple", llvm::sys::getProcessTriple(), "-emit-obj", "-x", "c++", "-std=c++17",
      // The IR is that of an optimised build, but no pass of Clang's own pipeline runs.
      options.opt_level == 0 ? "-O0" : "-O1", "-disable-llvm-passes",
      // Exact arithmetic: wrapping integers, no fused operation unless asked for, no errno.
      options.contract != 0 ? "-ffp-contract=fast" : "-ffp-contract=off", "-fwrapv",
      "-relaxed-aliasing", "-fno-rtti", "-ffreestanding", "-fno-builtin", "-nostdsysteminc",
      "-nobuiltininc", "-fbracket-depth", "4096", "-fno-threadsafe-statics", "-w",
      // Addresses are relative, so that the loader may put the object anywhere.
      "-mrelocation-model", "pic", "-pic-level", "2", "-mframe-pointer=none", "-target-cpu",
      options.cpu};
#if LLVM_VERSION_MAJOR < 15  // no _Float16 on most chips; __fp16 serves, once it may be an argument
  args.push_back("-fallow-half-arguments-and-returns");
#endif
  args.push_back("-mprefer-vector-width=" + std::to_string(options.vector_bits));
  llvm::SmallVector<llvm::StringRef, 64> features;
  llvm::StringRef(options.features).split(features, ',', -1, false);
  for (llvm::StringRef feature : features) {
    args.push_back("-target-feature");
    args.push_back(feature.str());
  }
  args.push_back(kFile);
  return args;
}

// The text's module and no more: Clang's own action would set up a back end, too.
class EmitModule : public clang::ASTFrontendAction {
 public:
  explicit EmitModule(llvm::LLVMContext& context) : context_(context) {}
  std::unique_ptr<llvm::Module> TakeModule() { return std::move(module_); }

 protected:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& compiler,
                                                        llvm::StringRef file) override {
    std::unique_ptr<clang::CodeGenerator> generator(
        clang::CreateLLVMCodeGen(compiler.getDiagnostics(), file,
#if LLVM_VERSION_MAJOR >= 15
                                 &compiler.getVirtualFileSystem(),
#endif
                                 compiler.getHeaderSearchOpts(), compiler.getPreprocessorOpts(),
                                 compiler.getCodeGenOpts(), context_));
    generator_ = generator.get();
    return generator;
  }
  void EndSourceFileAction() override {
    module_ = std::unique_ptr<llvm::Module>(generator_->ReleaseModule());
  }

 private:
  llvm::LLVMContext& context_;
  clang::CodeGenerator* generator_ = nullptr;  // of the compiler
  std::unique_ptr<llvm::Module> module_;       // null after an error
};

std::unique_ptr<llvm::Module> ParseText(llvm::LLVMContext& context, llvm::StringRef text,
                                        const TesseraCompileOptions& options,
                                        llvm::raw_ostream& log) {
  const std::vector<std::string> args = FrontendArguments(options);
  std::vector<const char*> pointers;
  for (const std::string& arg : args) pointers.push_back(arg.c_str());
  // The text is the only file that exists.
  llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem> files(new llvm::vfs::InMemoryFileSystem);
  files->addFile(kFile, 0, llvm::MemoryBuffer::getMemBufferCopy(text, kFile));
#if LLVM_VERSION_MAJOR >= 21
  clang::DiagnosticOptions diagnostic_options;
  clang::TextDiagnosticPrinter printer(log, diagnostic_options);
#else
  llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> diagnostic_options(
      new clang::DiagnosticOptions);
  clang::TextDiagnosticPrinter printer(log, diagnostic_options.get());
#endif
  llvm::IntrusiveRefCntPtr<clang::DiagnosticIDs> ids(new clang::DiagnosticIDs);
  clang::DiagnosticsEngine diagnostics(ids, diagnostic_options, &printer, false);
  clang::CompilerInstance compiler;
  if (!clang::CompilerInvocation::CreateFromArgs(compiler.getInvocation(), pointers, diagnostics)) {
    return nullptr;
  }
  compiler.getFrontendOpts().DisableFree = false;
  compiler.getLangOpts().setValueVisibilityMode(
      clang::HiddenVisibility);                     // flag differs by version
  compiler.getDiagnosticOpts().ShowCarets = false;  // else "1 error generated" goes to stderr
#if LLVM_VERSION_MAJOR >= 22
  compiler.setVirtualFileSystem(files);
  compiler.createDiagnostics(&printer, false);
  compiler.createFileManager();
#elif LLVM_VERSION_MAJOR >= 20
  compiler.createDiagnostics(*files, &printer, false);
  compiler.createFileManager(files);
#else
  compiler.createDiagnostics(&printer, false);
  compiler.createFileManager(files);
#endif
  EmitModule action(context);
  if (!compiler.ExecuteAction(action)) return nullptr;
  return action.TakeModule();
}

using Machine = std::unique_ptr<llvm::TargetMachine>;

// Null, and the error, where there is none for the module.
Machine MakeMachine(const llvm::Module& module, const TesseraCompileOptions& options,
                    std::string& error) {
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple& triple = module.getTargetTriple();
#else
  const std::string triple = module.getTargetTriple();
#endif
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (target == nullptr) return nullptr;
  return Machine(target->createTargetMachine(
      triple, options.cpu, options.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
      llvm::CodeModel::Small, CodegenLevel(options.opt_level)));
}

// Machines that no compile has at present, by their options. To make one, and the tables of a chip
// that it makes for its first function, is a twentieth of a small kernel's compile. Never freed:
// LLVM's globals may go first.
class IdleMachines {
 public:
  using Key = std::tuple<std::string, std::string, int32_t>;
  static Key KeyOf(const TesseraCompileOptions& options) {
    return {options.cpu, options.features, options.opt_level};
  }
  static IdleMachines& Global() {
    static IdleMachines* const machines = new IdleMachines;
    return *machines;
  }
  Machine Take(const Key& key) {  // null where there is none
    std::lock_guard<std::mutex> lock(mutex_);
    auto node = idle_.extract(key);
    return node.empty() ? nullptr : std::move(node.mapped());
  }
  void GiveBack(const Key& key, Machine machine) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.emplace(key, std::move(machine));
  }

 private:
  std::mutex mutex_;
  std::multimap<Key, Machine> idle_;
};

void Optimise(llvm::Module& module, llvm::TargetMachine* machine, int opt_level) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error error =
          builder.parsePassPipeline(passes, opt_level == 0 ? "always-inline" : kPipeline)) {
    llvm::report_fatal_error(std::move(error));  // comes back through OnFatalError
  }
  passes.run(module, modules);
}

// False where the target has no objects.
bool EmitObject(llvm::Module& module, llvm::TargetMachine* machine, llvm::raw_pwrite_stream& out) {
  llvm::legacy::PassManager emit;
  if (machine->addPassesToEmitFile(emit, out, nullptr, kObjectFile)) return false;
  emit.run(module);
  return true;
}

struct Job {
  llvm::StringRef text;
  const TesseraCompileOptions* options;
  llvm::SmallVector<char, 0> object;
  std::string log;
  bool failed = false;
};

// The whole compile. A fatal error leaves it by longjmp, so the caller's frame owns the job.
void Compile(Job& job) {
  Initialise();
  llvm::raw_string_ostream log(job.log);
  log.SetUnbuffered();
  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<CollectDiagnostics>(log, job.failed));
  std::unique_ptr<llvm::Module> module = ParseText(context, job.text, *job.options, log);
  job.failed = job.failed || module == nullptr;
  if (job.failed) return;
  std::string error;
  const IdleMachines::Key key = IdleMachines::KeyOf(*job.options);
  Machine machine = IdleMachines::Global().Take(key);
  if (machine == nullptr) machine = MakeMachine(*module, *job.options, error);
  if (machine == nullptr) {
    log << "error: " << error << "\n";
    job.failed = true;
    return;
  }
  Optimise(*module, machine.get(), job.options->opt_level);
  llvm::raw_svector_ostream out(job.object);
  if (!EmitObject(*module, machine.get(), out)) {
    log << "error: this target emits no objects\n";
    job.failed = true;
  }
  IdleMachines::Global().GiveBack(key, std::move(machine));
}

// Runs a job; false if LLVM called an error fatal.
bool CompileGuarded(Job* job) {
  FatalExit here;
  fatal_exit = &here;
  const bool fatal = setjmp(here.jump) != 0;
  if (!fatal) Compile(*job);
  fatal_exit = nullptr;
  if (fatal) job->log += "fatal error: " + here.reason + "\n";
  return !fatal;
}

}  // namespace

int32_t tessera_clang_abi(void) { return TESSERA_CLANG_ABI; }

const char* tessera_clang_version(void) { return "clang " CLANG_VERSION_STRING; }

int32_t tessera_clang_compile(const char* text, size_t size, const TesseraCompileOptions* options,
                              TesseraBytes* object, TesseraBytes* log) {
  *object = {nullptr, 0};
  *log = {nullptr, 0};
  Job job;
  job.text = llvm::StringRef(text, size);
  job.options = options;
  const bool ok = CompileGuarded(&job) && !job.failed;
  if (!Fill(log, job.log)) return 0;
  if (!ok) return 0;
  return Fill(object, llvm::StringRef(job.object.data(), job.object.size())) ? 1 : 0;
}

void tessera_clang_free(TesseraBytes* bytes) {
  std::free(bytes->data);
  *bytes = {nullptr, 0};
}
