// LoadedObject::Load: reads the tables with every bound checked, lays out, links, protects.
#include "runtime/elf_loader.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/status.h"
#include "runtime/elf_relocations.h"

namespace tessera {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif
constexpr uint64_t kMaxImageBytes = uint64_t{256} << 20;  // so that all distances fit 32 bits
constexpr uint64_t kMaxAlignment = 4096;

absl::Status Bad(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("not an object that we can load: ", what));
}

// What the system refuses, by errno.
absl::Status Refused(absl::string_view what) {
  const int error = errno;
  const std::string message =
      absl::StrCat("a kernel's code: the system refuses ", what, ": ", std::strerror(error));
  if (error == ENOMEM) {
    return absl::ResourceExhaustedError(
        absl::StrCat(message, ": there is too little memory, or the process has as many mappings ",
                     "as vm.max_map_count allows: raise that, or drop Jits that are not needed "
                     "and call ClearPlans()"));
  }
  return absl::UnavailableError(
      absl::StrCat(message, ": memory that is executable must be allowed to this process"));
}

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

// The state of one Load, in the order of its steps.
class ElfImage {
 public:
  explicit ElfImage(absl::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<std::unique_ptr<LoadedObject>> Load() {
    RETURN_IF_ERROR(ReadSections());
    RETURN_IF_ERROR(ReadSymbols());
    RETURN_IF_ERROR(CollectLinks());
    RETURN_IF_ERROR(Place());
    RETURN_IF_ERROR(Link());
    RETURN_IF_ERROR(Protect());
    RETURN_IF_ERROR(Export());
    return std::move(object_);
  }

 private:
  // Page groups of one protection each, in memory order; slots and stubs have their own places.
  enum Group { kCode, kConst, kData, kGroups };

  struct Section {
    Elf64_Shdr header;
    bool loaded = false;
    Group group = kData;
    uint64_t offset = 0;  // in the image
  };

  // `count` entries of T from byte `offset` of the file, which must hold them all.
  template <typename T>
  absl::Status ReadTable(uint64_t offset, uint64_t count, std::vector<T>* out) const {
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) {
      return Bad("a table runs past the end");
    }
    out->resize(count);
    if (count > 0) std::memcpy(out->data(), bytes_.data() + offset, count * sizeof(T));
    return absl::OkStatus();
  }

  absl::Status ReadSections();
  absl::Status ReadSymbols();
  absl::Status CollectLinks();
  absl::Status Place();
  absl::Status Link();
  absl::Status Protect();
  absl::Status Export();

  absl::StatusOr<absl::string_view> SymbolName(const Elf64_Sym& symbol) const;
  absl::StatusOr<uint64_t> SymbolAddress(const Elf64_Sym& symbol) const;
  absl::StatusOr<std::vector<Elf64_Rela>> Relocations(const Section& section) const;
  // Calls fn(target section, relocation, kind) for each relocation of a loaded section.
  template <typename Fn>
  absl::Status ForEachRelocation(Fn fn);

  uint64_t SlotOffset(uint32_t symbol) const { return slots_offset_ + 8 * slot_of_[symbol]; }
  uint64_t StubOffset(uint32_t symbol) const {
    return stubs_offset_ + kStubBytes * slot_of_[symbol];
  }
  uint64_t Address(uint64_t offset) const {
    return reinterpret_cast<uint64_t>(object_->base_) + offset;
  }

  absl::string_view bytes_;
  std::vector<Section> sections_;
  std::vector<Elf64_Sym> symbols_;
  absl::string_view names_;
  std::vector<int64_t> slot_of_;  // by symbol: its slot and stub, or -1
  int64_t slots_ = 0;
  uint64_t slots_offset_ = 0;
  uint64_t stubs_offset_ = 0;
  uint64_t group_begin_[kGroups + 1] = {};
  std::unique_ptr<LoadedObject> object_;
};

absl::Status ElfImage::ReadSections() {
  std::vector<Elf64_Ehdr> header;
  RETURN_IF_ERROR(ReadTable(0, 1, &header));
  const Elf64_Ehdr& elf = header[0];
  if (std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) return Bad("no ELF magic");
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_ident[EI_DATA] != ELFDATA2LSB ||
      elf.e_type != ET_REL || elf.e_machine != kMachine) {
    return Bad("another kind of file, or of another CPU");
  }
  if (elf.e_shentsize != sizeof(Elf64_Shdr)) return Bad("odd section headers");
  std::vector<Elf64_Shdr> headers;
  RETURN_IF_ERROR(ReadTable(elf.e_shoff, elf.e_shnum, &headers));
  for (const Elf64_Shdr& shdr : headers) {
    Section section;
    section.header = shdr;
    const bool in_file = shdr.sh_type != SHT_NOBITS && shdr.sh_type != SHT_NULL;
    if (in_file &&
        (shdr.sh_offset > bytes_.size() || shdr.sh_size > bytes_.size() - shdr.sh_offset)) {
      return Bad("a section runs past the end");
    }
    section.loaded = (shdr.sh_flags & SHF_ALLOC) != 0 && shdr.sh_type != SHT_NULL;
    if (section.loaded) {
      if ((shdr.sh_flags & SHF_TLS) != 0) return Bad("thread-local data");
      if (shdr.sh_size > kMaxImageBytes) return Bad("a section is too large");
      if (shdr.sh_addralign > kMaxAlignment || (shdr.sh_addralign & (shdr.sh_addralign - 1)) != 0) {
        return Bad("odd alignment");
      }
      section.group = (shdr.sh_flags & SHF_EXECINSTR) != 0 ? kCode
                      : (shdr.sh_flags & SHF_WRITE) != 0   ? kData
                                                           : kConst;
    }
    sections_.push_back(section);
  }
  return absl::OkStatus();
}

absl::Status ElfImage::ReadSymbols() {
  for (const Section& section : sections_) {
    const Elf64_Shdr& shdr = section.header;
    if (shdr.sh_type != SHT_SYMTAB) continue;
    if (!symbols_.empty()) return Bad("two symbol tables");
    if (shdr.sh_entsize != sizeof(Elf64_Sym)) return Bad("odd symbols");
    RETURN_IF_ERROR(ReadTable(shdr.sh_offset, shdr.sh_size / sizeof(Elf64_Sym), &symbols_));
    if (shdr.sh_link >= sections_.size()) return Bad("no symbol names");
    const Elf64_Shdr& names = sections_[shdr.sh_link].header;
    if (names.sh_type != SHT_STRTAB) return Bad("no symbol names");
    names_ = bytes_.substr(names.sh_offset, names.sh_size);
  }
  slot_of_.assign(symbols_.size(), -1);
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> ElfImage::SymbolName(const Elf64_Sym& symbol) const {
  if (symbol.st_name >= names_.size()) return Bad("a symbol's name lies outside the table");
  const absl::string_view rest = names_.substr(symbol.st_name);
  const size_t end = rest.find('\0');
  if (end == absl::string_view::npos) return Bad("a symbol's name has no end");
  return rest.substr(0, end);
}

absl::StatusOr<uint64_t> ElfImage::SymbolAddress(const Elf64_Sym& symbol) const {
  const int type = ELF64_ST_TYPE(symbol.st_info);
  if (type == STT_TLS || type == STT_GNU_IFUNC) return Bad("a symbol of a kind we do not load");
  if (symbol.st_shndx == SHN_UNDEF) {
    ASSIGN_OR_RETURN(const absl::string_view name, SymbolName(symbol));
    if (name.empty()) return uint64_t{0};
    void* address = FindExternal(name);
    if (address == nullptr && ELF64_ST_BIND(symbol.st_info) != STB_WEAK) {
      return Bad(absl::StrCat("it calls '", name, "', which is not on the list of elf_symbols.cc"));
    }
    return reinterpret_cast<uint64_t>(address);
  }
  if (symbol.st_shndx == SHN_ABS) return symbol.st_value;
  if (symbol.st_shndx >= sections_.size()) return Bad("a symbol in no section");
  const Section& section = sections_[symbol.st_shndx];
  if (!section.loaded) return Bad("a symbol in a section that is not loaded");
  if (symbol.st_value > section.header.sh_size) return Bad("a symbol outside its section");
  return Address(section.offset + symbol.st_value);
}

absl::StatusOr<std::vector<Elf64_Rela>> ElfImage::Relocations(const Section& section) const {
  std::vector<Elf64_Rela> relocations;
  const Elf64_Shdr& shdr = section.header;
  if (shdr.sh_info >= sections_.size()) return Bad("relocations of no section");
  const Section& target = sections_[shdr.sh_info];
  if (!target.loaded) return relocations;  // debug information
  if (shdr.sh_type == SHT_REL || shdr.sh_entsize != sizeof(Elf64_Rela)) {
    return Bad("odd relocations");
  }
  if (target.header.sh_type == SHT_NOBITS) return Bad("relocations of zeros");
  RETURN_IF_ERROR(ReadTable(shdr.sh_offset, shdr.sh_size / sizeof(Elf64_Rela), &relocations));
  return relocations;
}

template <typename Fn>
absl::Status ElfImage::ForEachRelocation(Fn fn) {
  for (const Section& section : sections_) {
    if (section.header.sh_type != SHT_RELA && section.header.sh_type != SHT_REL) continue;
    ASSIGN_OR_RETURN(const std::vector<Elf64_Rela> relocations, Relocations(section));
    for (const Elf64_Rela& relocation : relocations) {
      const Section& target = sections_[section.header.sh_info];
      const uint32_t type = ELF64_R_TYPE(relocation.r_info);
      const RelocationKind kind = KindOf(kMachine, type);
      if (kind.use == RelocationUse::kUnknown) {
        return Bad(absl::StrCat("relocation type ", type));
      }
      const uint64_t size = target.header.sh_size;
      if (size < static_cast<uint64_t>(kind.width) || relocation.r_offset > size - kind.width) {
        return Bad("a relocation outside its section");
      }
      if (ELF64_R_SYM(relocation.r_info) >= symbols_.size())
        return Bad("a relocation to no symbol");
      RETURN_IF_ERROR(fn(target, relocation, kind));
    }
  }
  return absl::OkStatus();
}

// Which symbols need a slot: those reached through one, and calls that leave the object.
absl::Status ElfImage::CollectLinks() {
  return ForEachRelocation(
      [this](const Section&, const Elf64_Rela& relocation, const RelocationKind& kind) {
        const uint32_t index = ELF64_R_SYM(relocation.r_info);
        const bool outside = symbols_[index].st_shndx == SHN_UNDEF;
        if (kind.use == RelocationUse::kSlot || (kind.use == RelocationUse::kCall && outside)) {
          if (slot_of_[index] < 0) slot_of_[index] = slots_++;
        }
        return absl::OkStatus();
      });
}

absl::Status ElfImage::Place() {
  const uint64_t page = sysconf(_SC_PAGESIZE);
  uint64_t end = 0;
  for (int group = 0; group < kGroups; ++group) {
    end = RoundUp(end, page);
    group_begin_[group] = end;
    if (group == kCode) {
      stubs_offset_ = end;
      end += kStubBytes * slots_;
    } else if (group == kConst) {
      slots_offset_ = end;
      end += 8 * slots_;
    }
    for (Section& section : sections_) {
      if (!section.loaded || section.group != group) continue;
      section.offset = RoundUp(end, std::max<uint64_t>(section.header.sh_addralign, 1));
      end = section.offset + section.header.sh_size;
      if (end > kMaxImageBytes) return Bad("its sections are too large");
    }
  }
  end = RoundUp(end, page);
  group_begin_[kGroups] = end;
  if (end == 0) return Bad("nothing to load");
  void* base = mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return Refused("memory");
  object_.reset(new LoadedObject);
  object_->base_ = static_cast<char*>(base);
  object_->size_ = end;
  for (const Section& section : sections_) {
    const Elf64_Shdr& shdr = section.header;
    if (!section.loaded || shdr.sh_type == SHT_NOBITS || shdr.sh_size == 0) continue;
    std::memcpy(object_->base_ + section.offset, bytes_.data() + shdr.sh_offset, shdr.sh_size);
  }
  return absl::OkStatus();
}

absl::Status ElfImage::Link() {
  for (uint32_t i = 0; i < symbols_.size(); ++i) {
    if (slot_of_[i] < 0) continue;
    ASSIGN_OR_RETURN(const uint64_t address, SymbolAddress(symbols_[i]));
    std::memcpy(object_->base_ + SlotOffset(i), &address, sizeof(address));
    WriteStub(kMachine, object_->base_ + StubOffset(i), Address(StubOffset(i)),
              Address(SlotOffset(i)));
  }
  return ForEachRelocation([this](const Section& target, const Elf64_Rela& relocation,
                                  const RelocationKind& kind) -> absl::Status {
    if (kind.use == RelocationUse::kNone) return absl::OkStatus();
    const uint32_t index = ELF64_R_SYM(relocation.r_info);
    uint64_t symbol = 0;
    if (kind.use == RelocationUse::kSlot) {
      symbol = Address(SlotOffset(index));
    } else if (kind.use == RelocationUse::kCall && slot_of_[index] >= 0) {
      symbol = Address(StubOffset(index));
    } else {
      ASSIGN_OR_RETURN(symbol, SymbolAddress(symbols_[index]));
    }
    const uint64_t offset = target.offset + relocation.r_offset;
    return ApplyRelocation(kMachine, ELF64_R_TYPE(relocation.r_info), object_->base_ + offset,
                           Address(offset), symbol, relocation.r_addend);
  });
}

absl::Status ElfImage::Protect() {
  constexpr int kProtection[kGroups] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
  for (int group = 0; group < kGroups; ++group) {
    const uint64_t begin = group_begin_[group], size = group_begin_[group + 1] - begin;
    if (size > 0 && mprotect(object_->base_ + begin, size, kProtection[group]) != 0) {
      return Refused("its protection");
    }
  }
  __builtin___clear_cache(object_->base_, object_->base_ + group_begin_[kConst]);
  return absl::OkStatus();
}

absl::Status ElfImage::Export() {
  for (const Elf64_Sym& symbol : symbols_) {
    const int type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= sections_.size()) continue;
    if (ELF64_ST_BIND(symbol.st_info) == STB_LOCAL || (type != STT_FUNC && type != STT_OBJECT)) {
      continue;
    }
    ASSIGN_OR_RETURN(const absl::string_view name, SymbolName(symbol));
    ASSIGN_OR_RETURN(const uint64_t address, SymbolAddress(symbol));
    object_->symbols_.emplace(std::string(name), reinterpret_cast<void*>(address));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoadedObject>> LoadedObject::Load(absl::string_view bytes) {
  return ElfImage(bytes).Load();
}

LoadedObject::~LoadedObject() {
  if (base_ != nullptr) munmap(base_, size_);
}

void* LoadedObject::Symbol(absl::string_view name) const {
  const auto found = symbols_.find(name);
  return found == symbols_.end() ? nullptr : found->second;
}

}  // namespace tessera
