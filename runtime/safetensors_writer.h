// Tensors by name, to a safetensors file and from one.
#pragma once

#include <map>
#include <string>

#include "graph/tensor.h"

namespace tessera {

// Computes the tensors and writes them in the order of their names, with text about them if given.
void SaveSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                     const std::map<std::string, std::string>& metadata = {},
                     CallSite at = CallSite::Here());

// The tensors of one file, copied; an Error where it is malformed.
std::map<std::string, Tensor> LoadSafetensors(const std::string& path, Device device = {},
                                              CallSite at = CallSite::Here());

}  // namespace tessera
