// The API over HTTP: routes, and answers that are streamed as server-sent events.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "examples/llm/api_service.h"
#include "examples/llm/command.h"

namespace tessera::llm {

class Server {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;                  // 0: any that is free
    std::string key;               // that clients must name; "": none
    std::string cors;              // whose pages may ask, an origin or "*"; "": none but its own
    int64_t most_body = 16 << 20;  // bytes
    int64_t connections = 64;      // that are served at once; more wait
    bool log = true;               // a line on stderr for each request
  };
  // Listens from here on. The service must outlive it.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ApiService& service, Options options);
  // Ends what is being answered, and waits for it.
  ~Server();
  int port() const;
  bool running() const;  // false: it has failed

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether this program was built with a library for HTTP.
absl::Status CanServe();
// The mode that serves, until Ctrl-C or SIGTERM.
absl::StatusOr<int> RunServe(const Command& command, const Model& model, Session& session);

}  // namespace tessera::llm
