// Small whole models as files: a base that loads, and ways to spoil it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/gguf_writer.h"

namespace tessera::llm {

// The parts of a tiny Llama; spoil one and write it.
struct SmallGguf {
  std::map<std::string, std::function<void(GgufWriter&, const std::string& key)>> values;
  struct Tensor {
    WeightFormat format;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Tensor> tensors;
  SmallGguf();
  template <typename T>
  SmallGguf& Set(const std::string& key, T value) {
    values[key] = [value](GgufWriter& w, const std::string& k) { w.Set(k, value); };
    return *this;
  }
  SmallGguf& Drop(const std::string& key) {
    values.erase(key);
    tensors.erase(key);
    return *this;
  }
  SmallGguf& Shape(const std::string& name, std::vector<int64_t> shape,
                   WeightFormat format = WeightFormat::kF32) {
    tensors[name] = {format, std::move(shape)};
    return *this;
  }
  // Weights of about a hundredth of what each format's numbers span; as they are, all are zero.
  SmallGguf& Random() {
    random = true;
    return *this;
  }
  std::string Bytes() const;
  std::string Write() const;  // to a file of its own, of which it gives the path
  bool random = false;
};

// Loading it is refused, in a message with this part and the file's name.
void ExpectRefused(const SmallGguf& file, const std::string& part);

// Where the halves of a block of the format lie.
std::vector<int> HalvesOf(WeightFormat format);
// Random blocks of a format, whose halves are finite numbers below 1.
void FillRandomly(WeightFormat format, char* to, int64_t size);

// Vocabulary of the tiny models: <unk>, <s>, </s>, 256 byte tokens, and a few words.
std::vector<std::string> SmallTokens();
// So many of its tokens, none of them special, others for another seed.
std::vector<int32_t> SomeTokens(int count, int seed = 0);

// A file of metadata alone, by hand: header and entries as given.
std::string RawGguf(uint32_t version, uint64_t tensors, uint64_t values, const std::string& rest);
// Entries of RawGguf.
std::string U32(uint32_t v);
std::string U64(uint64_t v);
std::string Text(const std::string& s);  // length and bytes
std::string RawTensor(const std::string& name, const std::vector<uint64_t>& extents, uint32_t type,
                      uint64_t offset);

// A tokenizer.json of all bytes by their number, then a few tokens of two.
std::string ByteLevelJson(const std::string& pre_tokenizer, const std::string& normalizer,
                          const std::string& added = "[]");

// A folder's files of the tiny model by name, as Hugging Face has them.
std::map<std::string, std::string> SmallFolder();
std::string Safetensors(const std::string& header, size_t data_bytes);

}  // namespace tessera::llm
