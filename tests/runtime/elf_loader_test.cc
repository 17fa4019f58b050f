// The relocator: everything a real object may hold, and every way in which bytes may be broken.
#include "runtime/elf_loader.h"

#include <elf.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "runtime/elf_relocations.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "runtime/jit_compiler.h"
#include "tests/runtime/kernel_texts.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// A real object, compiled once.
const std::string& Everything() {
  static const std::string* const object = [] {
    auto bytes = CompileToObject(EverythingText(), HostTarget());
    CHECK(bytes.ok(), bytes.status().ToString());
    return new std::string(*std::move(bytes));
  }();
  return *object;
}

float Call(const LoadedObject& object, int64_t which, int64_t value, void* buffer = nullptr) {
  auto fn = reinterpret_cast<CpuKernelFn>(object.Symbol("everything"));
  float out = -1;
  void* buffers[] = {&out, buffer};
  const int64_t vars[] = {which, value};
  fn(buffers, vars, nullptr, 0, 1);
  return out;
}

TEST(ElfLoader, EverythingRuns) {
  ASSERT_OK_AND_ASSIGN(auto object, LoadedObject::Load(Everything()));
  EXPECT_EQ(Call(*object, 0, 0), 8.125f);
  EXPECT_EQ(Call(*object, 1, 0), std::exp(1.5f));
  EXPECT_EQ(Call(*object, 2, 5), 6.0f);
  EXPECT_EQ(Call(*object, 3, 0), 10.0f);
  EXPECT_EQ(Call(*object, 3, 0), 11.0f);  // data is writable
  EXPECT_EQ(Call(*object, 4, 0), 3.0f);
  EXPECT_EQ(Call(*object, 4, 1), 7.0f);
  EXPECT_EQ(Call(*object, 5, 0), 1024.0f);
  float in[16] = {1, 2, 3, 42, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  EXPECT_EQ(Call(*object, 6, sizeof(in), in), 42.0f);
  EXPECT_EQ(Call(*object, 7, 0, in), 48.0f);
}

TEST(ElfLoader, ObjectsAreApart) {
  ASSERT_OK_AND_ASSIGN(auto one, LoadedObject::Load(Everything()));
  ASSERT_OK_AND_ASSIGN(auto two, LoadedObject::Load(Everything()));
  EXPECT_EQ(Call(*one, 3, 0), 10.0f);
  EXPECT_EQ(Call(*one, 3, 0), 11.0f);
  EXPECT_EQ(Call(*two, 3, 0), 10.0f);
}

TEST(ElfLoader, Symbols) {
  ASSERT_OK_AND_ASSIGN(auto object, LoadedObject::Load(Everything()));
  EXPECT_NE(object->Symbol("everything"), nullptr);
  EXPECT_NE(object->Symbol("indirect"), nullptr);
  EXPECT_EQ(object->Symbol("Inner"), nullptr);  // local
  EXPECT_EQ(object->Symbol("expf"), nullptr);   // not its own
  EXPECT_EQ(object->Symbol(""), nullptr);
}

// The lines of the process's memory map that hold `address`.
std::string MapLine(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const uint64_t want = reinterpret_cast<uint64_t>(address);
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (want >= begin && want < end) return line;
  }
  return "";
}

TEST(ElfLoader, NoPageIsWritableAndExecutable) {
  ASSERT_OK_AND_ASSIGN(auto object, LoadedObject::Load(Everything()));
  const void* code = object->Symbol("everything");
  const void* data = object->Symbol("indirect");
  EXPECT_THAT(MapLine(code), HasSubstr(" r-xp"));
  EXPECT_THAT(MapLine(data), HasSubstr(" rw-p"));
}

TEST(ElfLoader, DestructionUnmaps) {
  ASSERT_OK_AND_ASSIGN(auto object, LoadedObject::Load(Everything()));
  const void* code = object->Symbol("everything");
  object.reset();
  EXPECT_EQ(MapLine(code).find("r-xp"), std::string::npos);
}

// Named Slow as the sanitizers' own memory needs mappings.
TEST(ElfLoader, WithoutMappingsLeftTheErrorSaysSoSlow) {
  Everything();
  constexpr int64_t kPages = 1 << 18, kPage = 4096;
  void* const pages =
      mmap(nullptr, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  bool full = false;
  for (int64_t i = 0; i < kPages && !full; i += 2) {  // each makes two of one
    full = mprotect(static_cast<char*>(pages) + i * kPage, kPage, PROT_READ) != 0;
  }
  const auto refused = LoadedObject::Load(Everything());
  munmap(pages, kPages * kPage);
  if (!full) GTEST_SKIP() << "this system has no limit";
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "vm.max_map_count"));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "Cannot allocate memory"));
  EXPECT_OK(LoadedObject::Load(Everything()));
}

TEST(ElfLoader, UnknownExternalIsNamed) {
  ASSERT_OK_AND_ASSIGN(
      const std::string object,
      CompileToObject("extern \"C\" int system(const char*); extern \"C\" int f() { return "
                      "system(\"\"); }",
                      HostTarget()));
  EXPECT_THAT(LoadedObject::Load(object), StatusIs(absl::StatusCode::kDataLoss, "'system'"));
}

TEST(ElfLoader, EveryExternalResolves) {
  for (const char* name : {"expf",  "exp",  "logf",  "log",  "sinf",   "sin",    "cosf",   "cos",
                           "tanf",  "tan",  "powf",  "pow",  "fmodf",  "fmod",   "erff",   "erf",
                           "erfcf", "erfc", "tanhf", "tanh", "memcpy", "memset", "memmove"}) {
    EXPECT_NE(FindExternal(name), nullptr) << name;
  }
  EXPECT_EQ(FindExternal("system"), nullptr);
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(FindExternal("exp"))(1.0), std::exp(1.0));
  EXPECT_EQ(reinterpret_cast<float (*)(float)>(FindExternal("expf"))(1.0f), std::exp(1.0f));
}

// What the compiler calls by itself: wide division, and the copy of a large struct.
TEST(ElfLoader, CompilerHelpersResolve) {
  const std::string text =
      "extern \"C\" void divide(__int128* p) { p[0] = p[1] / p[2]; }"
      "struct S { char b[5000]; }; extern \"C\" void copy(S* p) { p[0] = p[1]; }";
  ASSERT_OK_AND_ASSIGN(const std::string bytes, CompileToObject(text, HostTarget()));
  ASSERT_OK_AND_ASSIGN(auto object, LoadedObject::Load(bytes));
  __extension__ using Wide = __int128;
  Wide numbers[3] = {0, Wide{1} << 100, 1 << 20};
  reinterpret_cast<void (*)(Wide*)>(object->Symbol("divide"))(numbers);
  EXPECT_TRUE(numbers[0] == Wide{1} << 80);
  std::string twice(10000, 'a');
  std::fill(twice.begin() + 5000, twice.end(), 'b');
  reinterpret_cast<void (*)(char*)>(object->Symbol("copy"))(twice.data());
  EXPECT_EQ(twice, std::string(10000, 'b'));
}

// Every prefix of the file: the symbol tables lie at its end, so each lacks something.
TEST(ElfLoader, EveryTruncationIsAnError) {
  const std::string& whole = Everything();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THAT(LoadedObject::Load(absl::string_view(whole).substr(0, n)),
                StatusIs(absl::StatusCode::kDataLoss, ""))
        << n;
  }
}

template <typename T>
T Get(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

template <typename T>
void Put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

// Where the header of the first section of this type lies in the file.
size_t SectionOf(const std::string& bytes, uint32_t type) {
  const auto elf = Get<Elf64_Ehdr>(bytes, 0);
  for (int i = 0; i < elf.e_shnum; ++i) {
    const size_t at = elf.e_shoff + i * sizeof(Elf64_Shdr);
    if (Get<Elf64_Shdr>(bytes, at).sh_type == type) return at;
  }
  return 0;
}

// One field changed, and what the message says.
#define EXPECT_REJECTED(at, field_type, struct_type, field, value, message)                 \
  {                                                                                         \
    std::string bytes = Everything();                                                       \
    Put<field_type>(bytes, (at) + offsetof(struct_type, field), value);                     \
    EXPECT_THAT(LoadedObject::Load(bytes), StatusIs(absl::StatusCode::kDataLoss, message)); \
  }

TEST(ElfLoader, EachBrokenFieldIsAnError) {
  const std::string& whole = Everything();
  EXPECT_REJECTED(0, uint8_t, Elf64_Ehdr, e_ident, 'X', "magic");
  EXPECT_REJECTED(0, uint16_t, Elf64_Ehdr, e_machine, EM_SPARC, "another CPU");
  EXPECT_REJECTED(0, uint16_t, Elf64_Ehdr, e_type, ET_EXEC, "another kind");
  EXPECT_REJECTED(0, uint16_t, Elf64_Ehdr, e_shentsize, 63, "section headers");
  EXPECT_REJECTED(0, uint64_t, Elf64_Ehdr, e_shoff, whole.size(), "past the end");
  EXPECT_REJECTED(0, uint64_t, Elf64_Ehdr, e_shoff, UINT64_MAX - 8, "past the end");
  EXPECT_REJECTED(0, uint16_t, Elf64_Ehdr, e_shnum, 0xfff0, "past the end");
  EXPECT_REJECTED(0, uint16_t, Elf64_Ehdr, e_shnum, 0, "nothing to load");
  const size_t code = SectionOf(whole, SHT_PROGBITS);
  EXPECT_REJECTED(code, uint64_t, Elf64_Shdr, sh_offset, UINT64_MAX, "past the end");
  EXPECT_REJECTED(code, uint64_t, Elf64_Shdr, sh_size, UINT64_MAX, "past the end");
  EXPECT_REJECTED(code, uint64_t, Elf64_Shdr, sh_addralign, 3, "alignment");
  EXPECT_REJECTED(code, uint64_t, Elf64_Shdr, sh_addralign, uint64_t{1} << 40, "alignment");
  const size_t zeros = SectionOf(whole, SHT_NOBITS);
  EXPECT_REJECTED(zeros, uint64_t, Elf64_Shdr, sh_size, uint64_t{1} << 40, "too large");
  EXPECT_REJECTED(zeros, uint64_t, Elf64_Shdr, sh_size, uint64_t{256} << 20,
                  "sections are too large");
  EXPECT_REJECTED(zeros, uint64_t, Elf64_Shdr, sh_flags, SHF_ALLOC | SHF_TLS, "thread-local");
  const size_t symbols = SectionOf(whole, SHT_SYMTAB);
  EXPECT_REJECTED(symbols, uint64_t, Elf64_Shdr, sh_entsize, 1, "odd symbols");
  EXPECT_REJECTED(symbols, uint32_t, Elf64_Shdr, sh_link, 0xffff, "no symbol names");
  EXPECT_REJECTED(symbols, uint64_t, Elf64_Shdr, sh_size, 0, "no symbol");
  const size_t relocations = SectionOf(whole, SHT_RELA);
  EXPECT_REJECTED(relocations, uint32_t, Elf64_Shdr, sh_info, 0xffff, "no section");
  EXPECT_REJECTED(relocations, uint64_t, Elf64_Shdr, sh_entsize, 1, "odd relocations");
  EXPECT_REJECTED(relocations, uint32_t, Elf64_Shdr, sh_type, SHT_REL, "odd relocations");
  const size_t first = Get<Elf64_Shdr>(whole, relocations).sh_offset;
  EXPECT_REJECTED(first, uint64_t, Elf64_Rela, r_offset, UINT64_MAX - 3, "outside its section");
  EXPECT_REJECTED(first, uint64_t, Elf64_Rela, r_info, uint64_t{0xffffff} << 32 | 2, "no symbol");
  EXPECT_REJECTED(first, uint64_t, Elf64_Rela, r_info, 250, "relocation type 250");
  EXPECT_REJECTED(first, int64_t, Elf64_Rela, r_addend, INT64_MAX, "does not reach");
}

// Bytes changed at random, one to eight at a time, half of them in the tables: an error or an
// object, whose code is not run. The sanitizers watch.
TEST(ElfLoader, FuzzedBytesNeverCrash) {
  const std::string& whole = Everything();
  const auto elf = Get<Elf64_Ehdr>(whole, 0);
  std::mt19937_64 random(20240607);
  int loaded = 0, rejected = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    const int changes = 1 + random() % 8;
    for (int i = 0; i < changes; ++i) {
      size_t at = random() % bytes.size();
      if (random() % 2 == 0) at = elf.e_shoff + random() % (bytes.size() - elf.e_shoff);
      if (random() % 8 == 0) at = random() % sizeof(Elf64_Ehdr);
      bytes[at] = random() % 4 == 0 ? static_cast<char>(0xff) : static_cast<char>(random());
    }
    if (random() % 16 == 0) bytes.resize(random() % bytes.size());
    auto object = LoadedObject::Load(bytes);
    if (object.ok()) {
      ++loaded;
      (void)(*object)->Symbol("everything");
    } else {
      ++rejected;
      ASSERT_TRUE(absl::IsDataLoss(object.status())) << object.status();
    }
  }
  EXPECT_GT(loaded, 100);
  EXPECT_GT(rejected, 100);
}

// The arithmetic of both machines by hand.
TEST(ElfRelocations, X86) {
  char place[8] = {};
  ASSERT_OK(ApplyRelocation(EM_X86_64, R_X86_64_PC32, place, 0x1000, 0x3000, -4));
  EXPECT_EQ(Get<int32_t>(std::string(place, 8), 0), 0x1ffc);
  ASSERT_OK(ApplyRelocation(EM_X86_64, R_X86_64_64, place, 0x1000, 0x123456789abc, 1));
  EXPECT_EQ(Get<uint64_t>(std::string(place, 8), 0), 0x123456789abdu);
  ASSERT_OK(ApplyRelocation(EM_X86_64, R_X86_64_PC64, place, 0x3000, 0x1000, 0));
  EXPECT_EQ(Get<int64_t>(std::string(place, 8), 0), -0x2000);
  EXPECT_FALSE(ApplyRelocation(EM_X86_64, R_X86_64_32, place, 0, 0x100000000, 0).ok());
  EXPECT_FALSE(ApplyRelocation(EM_X86_64, R_X86_64_32S, place, 0, 0x80000000, 0).ok());
  EXPECT_TRUE(ApplyRelocation(EM_X86_64, R_X86_64_32, place, 0, 0x80000000, 0).ok());
  EXPECT_FALSE(ApplyRelocation(EM_X86_64, R_X86_64_PC32, place, 0, 0x80000000, 0).ok());
}

// Expected words are what `llvm-mc --triple=aarch64` gives for the same distances.
TEST(ElfRelocations, Arm) {
  auto apply = [](uint32_t type, uint32_t word, uint64_t address, uint64_t symbol) {
    char place[4];
    std::memcpy(place, &word, 4);
    EXPECT_OK(ApplyRelocation(EM_AARCH64, type, place, address, symbol, 0));
    return Get<uint32_t>(std::string(place, 4), 0);
  };
  EXPECT_EQ(apply(R_AARCH64_CALL26, 0x94000000, 0x1000, 0x1010), 0x94000004u);  // bl #16
  EXPECT_EQ(apply(R_AARCH64_JUMP26, 0x14000000, 0x1010, 0x1000), 0x17fffffcu);  // b #-16
  EXPECT_EQ(apply(R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, 0x1004, 0x6123), 0xb0000020u);
  EXPECT_EQ(apply(R_AARCH64_ADD_ABS_LO12_NC, 0x91000000, 0, 0x6123), 0x91048c00u);
  EXPECT_EQ(apply(R_AARCH64_LDST64_ABS_LO12_NC, 0xf9400000, 0, 0x6128), 0xf9409400u);
  EXPECT_EQ(apply(R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00000, 0, 0x6130), 0x3dc04c00u);
  char place[4] = {};
  EXPECT_FALSE(ApplyRelocation(EM_AARCH64, R_AARCH64_CALL26, place, 0, 1 << 27, 0).ok());
  EXPECT_FALSE(ApplyRelocation(EM_AARCH64, R_AARCH64_LDST128_ABS_LO12_NC, place, 0, 8, 0).ok());
}

}  // namespace
}  // namespace tessera
