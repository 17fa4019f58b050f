// The JSON checker (with a stack of its own) and the scanner that walks checked text.
#include "runtime/json.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "graph/status.h"
#include "runtime/mapped_file.h"

namespace tessera {
namespace {

constexpr int kMaxDepth = 64;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void AppendUtf8(uint32_t c, std::string* out) {
  const auto add = [&](uint32_t b) { out->push_back(static_cast<char>(b)); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      add(0xE0 | c >> 12);
    } else {
      add(0xF0 | c >> 18);
      add(0x80 | (c >> 12 & 0x3F));
    }
    add(0x80 | (c >> 6 & 0x3F));
  }
  add(0x80 | (c & 0x3F));
}

uint32_t Hex4(absl::string_view s) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v = v << 4 | static_cast<uint32_t>(HexDigit(s[i]));
  return v;
}

// The characters of a checked string, quotes included in the text.
std::string Unescape(absl::string_view quoted) {
  const absl::string_view s = quoted.substr(1, quoted.size() - 2);
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\') {
      out += s[i];
      continue;
    }
    switch (s[++i]) {
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u': {
        uint32_t c = Hex4(s.substr(i + 1));
        i += 4;
        if (c >= 0xD800 && c <= 0xDBFF) {  // checked: the other half follows
          c = 0x10000 + ((c - 0xD800) << 10) + (Hex4(s.substr(i + 3)) - 0xDC00);
          i += 6;
        }
        AppendUtf8(c, &out);
        break;
      }
      default:
        out += s[i];
    }
  }
  return out;
}

// ---- checking

struct Checker {
  absl::string_view s;
  const std::string& name;
  size_t at = 0;
  std::vector<char> open = {};      // { and [
  std::vector<uint32_t> keys = {};  // where the keys of the open objects begin
  std::vector<size_t> first = {};   // of `keys`, by open bracket

  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(name, ": byte ", at, ": ", what));
  }
  char Peek() const { return at < s.size() ? s[at] : '\0'; }
  bool Take(char c) {
    if (at >= s.size() || s[at] != c) return false;
    ++at;
    return true;
  }
  void Space() {
    while (at < s.size() && IsSpace(s[at])) ++at;
  }

  absl::Status Run() {
    if (s.size() >= UINT32_MAX) return Error("the text is larger than 4 GiB");
    if (const size_t valid = ValidUtf8Prefix(s); valid != s.size()) {
      at = valid;
      return Error("not UTF-8");
    }
    while (true) {
      Space();
      bool opened = false;
      RETURN_IF_ERROR(Value(&opened));
      if (opened) continue;
      RETURN_IF_ERROR(AfterValue());
      if (open.empty()) break;
    }
    Space();
    if (at != s.size()) return Error("text after the end of the JSON value");
    return absl::OkStatus();
  }

  // A value; of an array or object that is not empty only the part before its first value.
  absl::Status Value(bool* opened) {
    const char c = Peek();
    if (c == '"') return String();
    if (c == '-' || IsDigit(c)) return Number();
    for (absl::string_view word : {"true", "false", "null"}) {
      if (s.substr(at, word.size()) == word) {
        at += word.size();
        return absl::OkStatus();
      }
    }
    if (c != '{' && c != '[') {
      return Error(at >= s.size() ? "the text ends where a value should be" : "no JSON value");
    }
    if (open.size() >= kMaxDepth) return Error("nested deeper than 64");
    ++at;
    Space();
    if (Take(c == '{' ? '}' : ']')) return absl::OkStatus();
    open.push_back(c);
    first.push_back(keys.size());
    *opened = true;
    return c == '{' ? Key() : absl::OkStatus();
  }

  absl::Status AfterValue() {
    while (!open.empty()) {
      Space();
      const bool object = open.back() == '{';
      if (Take(',')) {
        Space();
        return object ? Key() : absl::OkStatus();
      }
      if (!Take(object ? '}' : ']')) {
        return Error(at >= s.size() ? "the text ends within an array or object"
                                    : "a comma or closing bracket is missing");
      }
      if (object) RETURN_IF_ERROR(KeysDiffer());
      keys.resize(first.back());
      first.pop_back();
      open.pop_back();
    }
    return absl::OkStatus();
  }

  absl::Status Key() {
    if (Peek() != '"') return Error("a key is missing");
    keys.push_back(static_cast<uint32_t>(at));
    RETURN_IF_ERROR(String());
    Space();
    if (!Take(':')) return Error("a colon is missing");
    return absl::OkStatus();
  }

  // The quoted key that begins there.
  absl::string_view KeyAt(uint32_t begin) const {
    size_t end = begin + 1;
    while (s[end] != '"') end += s[end] == '\\' ? 2 : 1;
    return s.substr(begin, end + 1 - begin);
  }
  bool Less(uint32_t a, uint32_t b) const {
    const absl::string_view x = KeyAt(a), y = KeyAt(b);
    const bool plain =
        x.find('\\') == absl::string_view::npos && y.find('\\') == absl::string_view::npos;
    return plain ? x.substr(1, x.size() - 2) < y.substr(1, y.size() - 2)
                 : Unescape(x) < Unescape(y);
  }
  absl::Status KeysDiffer() {
    const auto begin = keys.begin() + static_cast<int64_t>(first.back());
    const auto less = [this](uint32_t a, uint32_t b) { return Less(a, b); };
    std::sort(begin, keys.end(), less);
    const auto same =
        std::adjacent_find(begin, keys.end(), [&](uint32_t a, uint32_t b) { return !less(a, b); });
    if (same == keys.end()) return absl::OkStatus();
    at = std::max(same[0], same[1]);
    return Error(absl::StrCat("the key ", ShowName(Unescape(KeyAt(*same))), " is there twice"));
  }

  absl::Status String() {
    ++at;
    while (at < s.size()) {
      const char c = s[at];
      if (c == '"') {
        ++at;
        return absl::OkStatus();
      }
      if (static_cast<uint8_t>(c) < 0x20) return Error("a control character in a string");
      ++at;
      if (c == '\\') RETURN_IF_ERROR(Escape());
    }
    return Error("the text ends within a string");
  }

  absl::Status Escape() {
    const char c = Peek();
    if (c != 'u') {
      if (c == '\0' || std::strchr("\"\\/bfnrt", c) == nullptr) return Error("a wrong escape");
      ++at;
      return absl::OkStatus();
    }
    uint32_t code = 0;
    RETURN_IF_ERROR(Unicode(&code));
    if (code >= 0xDC00 && code <= 0xDFFF) return Error("half of a surrogate pair");
    if (code < 0xD800 || code > 0xDBFF) return absl::OkStatus();
    uint32_t low = 0;
    if (!Take('\\') || Peek() != 'u') return Error("half of a surrogate pair");
    RETURN_IF_ERROR(Unicode(&low));
    if (low < 0xDC00 || low > 0xDFFF) return Error("half of a surrogate pair");
    return absl::OkStatus();
  }
  absl::Status Unicode(uint32_t* code) {
    ++at;
    for (int i = 0; i < 4; ++i) {
      if (at + i >= s.size() || HexDigit(s[at + i]) < 0) return Error("a wrong escape");
    }
    *code = Hex4(s.substr(at));
    at += 4;
    return absl::OkStatus();
  }

  absl::Status Number() {
    const auto digits = [&] {
      const size_t begin = at;
      while (IsDigit(Peek())) ++at;
      return at > begin;
    };
    Take('-');
    if (!Take('0') && !digits()) return Error("a wrong number");
    if (Take('.') && !digits()) return Error("a wrong number");
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      if (!digits()) return Error("a wrong number");
    }
    return absl::OkStatus();
  }
};

// ---- walking checked text

// The size of the value that s starts with.
size_t ValueSize(absl::string_view s) {
  size_t i = 0;
  int depth = 0;
  do {
    const char c = s[i];
    if (c == '"') {
      for (++i; s[i] != '"'; i += s[i] == '\\' ? 2 : 1) {
      }
      ++i;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++i;
    } else if (c == '}' || c == ']') {
      --depth;
      ++i;
    } else if (depth > 0) {
      ++i;
    } else {
      while (i < s.size() && !IsSpace(s[i]) && std::strchr(",]}", s[i]) == nullptr) ++i;
    }
  } while (depth > 0);
  return i;
}

absl::string_view SkipSpace(absl::string_view s) {
  size_t i = 0;
  while (i < s.size() && IsSpace(s[i])) ++i;
  return s.substr(i);
}

}  // namespace

absl::StatusOr<Json> Json::Parse(absl::string_view text, const std::string& name) {
  Checker checker{text, name};
  RETURN_IF_ERROR(checker.Run());
  const absl::string_view value = SkipSpace(text);
  return Json(value.substr(0, ValueSize(value)));
}

Json::Type Json::type() const {
  switch (text_[0]) {
    case '{':
      return Type::kObject;
    case '[':
      return Type::kArray;
    case '"':
      return Type::kString;
    case 't':
    case 'f':
      return Type::kBool;
    case 'n':
      return Type::kNull;
    default:
      return Type::kNumber;
  }
}

std::optional<bool> Json::Bool() const {
  if (!is(Type::kBool)) return std::nullopt;
  return text_[0] == 't';
}

std::optional<int64_t> Json::Int() const {
  if (!is(Type::kNumber)) return std::nullopt;
  int64_t value = 0;
  const char* end = text_.data() + text_.size();
  const auto [to, error] = std::from_chars(text_.data(), end, value);
  if (error != std::errc() || to != end) return std::nullopt;
  return value;
}

std::optional<double> Json::Number() const {
  if (!is(Type::kNumber)) return std::nullopt;
  double value = 0;
  const char* end = text_.data() + text_.size();
  const auto [to, error] = std::from_chars(text_.data(), end, value);
  if (error != std::errc() || to != end) return std::nullopt;
  return value;
}

std::optional<std::string> Json::String() const {
  if (!is(Type::kString)) return std::nullopt;
  return Unescape(text_);
}

std::optional<Json> Json::Find(absl::string_view key) const {
  if (!is(Type::kObject)) return std::nullopt;
  for (const JsonItem item : Items()) {
    if (item.key() == key) return item.value();
  }
  return std::nullopt;
}

Json::Range Json::Items() const {
  const Iterator last({}, false);
  if (!is(Type::kObject) && !is(Type::kArray)) return {last, last};
  const absl::string_view inside = SkipSpace(text_.substr(1));
  if (inside[0] == '}' || inside[0] == ']') return {last, last};
  return {Iterator(inside, is(Type::kObject)), last};
}

JsonItem Json::Iterator::operator*() const {
  absl::string_view key, value = rest_;
  if (object_) {
    key = rest_.substr(0, ValueSize(rest_));
    value = SkipSpace(SkipSpace(rest_.substr(key.size())).substr(1));  // the colon
  }
  return JsonItem(key, Json(value.substr(0, ValueSize(value))));
}

Json::Iterator& Json::Iterator::operator++() {
  const absl::string_view value = (**this).value().text_;
  rest_ = SkipSpace(rest_.substr(static_cast<size_t>(value.data() + value.size() - rest_.data())));
  rest_ = rest_[0] == ',' ? SkipSpace(rest_.substr(1)) : absl::string_view();
  return *this;
}

std::string JsonItem::key() const { return key_.empty() ? "" : Unescape(key_); }

}  // namespace tessera
