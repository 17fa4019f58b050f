// HTTP by cpp-httplib, which gives each connection a thread.
#include "examples/llm/server.h"

#include <httplib.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr char kJson[] = "application/json";
// A client that sends more than it may is told so after all of it, up to this many times as much.
constexpr int64_t kMostPassedOver = 64;

void Fail(httplib::Response& response, int status, const absl::Status& error) {
  response.status = status;
  response.set_content(ErrorJson(error, status), kJson);
}

void Fail(httplib::Response& response, const absl::Status& error) {
  Fail(response, HttpStatusOf(error), error);
}

// Whether they are equal, in a time that does not tell where they differ.
bool SameKey(absl::string_view a, absl::string_view b) {
  size_t different = a.size() ^ b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    different |= static_cast<size_t>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return different == 0;
}

std::string Called(const httplib::Request& request) {
  return absl::StrCat(request.method, " ", absl::CEscape(request.path));
}

// The last part of a path.
std::string NameOf(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  return std::string(path.substr(path.find_last_of('/') + 1));
}

}  // namespace

struct Server::Impl {
  ApiService& service;
  const Options options;
  httplib::Server http;
  int port = -1;
  socket_t socket = INVALID_SOCKET;
  std::atomic<bool> ended = false;
  std::thread listening;

  Impl(ApiService& s, Options o) : service(s), options(std::move(o)) {}

  struct Exchange {
    const httplib::Request& request;
    httplib::Response& response;
    std::string body;
  };
  struct Route {
    const char* method;
    const char* path;  // without /v1
    void (Impl::*answer)(Exchange&);
  };
  static const Route kRoutes[];

  void Health(Exchange& e) { e.response.set_content(R"({"status":"ok"})", kJson); }
  void Models(Exchange& e) { e.response.set_content(service.Models(), kJson); }
  void Metrics(Exchange& e) {
    e.response.set_content(service.Metrics(), "text/plain; version=0.0.4");
  }
  void Tokenize(Exchange& e) { Tell(service.Tokenize(e.body), e); }
  void Detokenize(Exchange& e) { Tell(service.Detokenize(e.body), e); }
  void Chat(Exchange& e) { Generate(e, true); }
  void Complete(Exchange& e) { Generate(e, false); }

  static void Tell(const absl::StatusOr<std::string>& json, Exchange& e) {
    if (!json.ok()) return Fail(e.response, json.status());
    e.response.set_content(*json, kJson);
  }

  // The texts are written while the answer is sent, which is when a client can be seen to be gone.
  void Generate(Exchange& e, bool chat) {
    absl::StatusOr<std::shared_ptr<const ApiService::Job>> job = service.Take(e.body, chat);
    if (!job.ok()) return Fail(e.response, job.status());
    const std::string called = Called(e.request);
    const auto provide = [this, job = *job, called](size_t, httplib::DataSink& sink) {
      absl::StatusOr<ApiService::Report> report;
      try {
        report = Send(*job, sink);
      } catch (const std::exception& error) {  // the library catches none here
        report = absl::InternalError(error.what());
      }
      LogAnswer(called, report);
      if (report.ok()) sink.done();
      return report.ok();  // else the connection is broken off
    };
    if ((*job)->request.stream) e.response.set_header("Cache-Control", "no-cache");
    e.response.set_chunked_content_provider(
        (*job)->request.stream ? "text/event-stream; charset=utf-8" : kJson, provide);
  }

  absl::StatusOr<ApiService::Report> Send(const ApiService::Job& job, httplib::DataSink& sink) {
    const bool stream = job.request.stream;
    const auto send = [&](const std::string& text) {
      return sink.is_writable() && sink.write(text.data(), text.size());
    };
    const auto event = [&](const std::string& json) { return send("data: " + json + "\n\n"); };
    absl::StatusOr<ApiService::Report> report = service.Answer(
        job, [&](const std::string& json) { return stream ? event(json) : send(json); },
        [&] { return sink.is_writable(); });
    if (stream) {
      event(report.ok() ? "[DONE]" : ErrorJson(report.status(), HttpStatusOf(report.status())));
    }
    return report;
  }

  void LogAnswer(const std::string& called, const absl::StatusOr<ApiService::Report>& report) {
    if (!options.log) return;
    if (!report.ok()) {
      std::fprintf(stderr, "llm: %s: %s\n", called.c_str(),
                   std::string(report.status().message()).c_str());
      return;
    }
    std::fprintf(stderr, "llm: %s: 200, %d tokens, %d more in %.3f s, %.1f a second\n",
                 called.c_str(), static_cast<int>(report->usage.prompt),
                 static_cast<int>(report->usage.completion), report->seconds,
                 static_cast<double>(report->usage.completion) / std::max(report->seconds, 1e-9));
  }

  // Of what is told as a whole.
  void Log(const httplib::Request& request, const httplib::Response& response) const {
    if (!options.log || response.content_provider_) return;
    std::fprintf(stderr, "llm: %s: %d\n", Called(request).c_str(), response.status);
  }

  bool MayAsk(const httplib::Request& request) const {
    std::string given = request.get_header_value("Authorization");
    absl::string_view key = given;
    return options.key.empty() ||
           (absl::ConsumePrefix(&key, "Bearer ") && SameKey(key, options.key));
  }

  // What browsers ask before a page of another origin may ask, without a key.
  static void Permit(const httplib::Request& request, const Route& route,
                     httplib::Response& response) {
    response.set_header("Access-Control-Allow-Methods", route.method);
    const std::string headers = request.get_header_value("Access-Control-Request-Headers");
    if (!headers.empty()) response.set_header("Access-Control-Allow-Headers", headers);
    response.set_header("Access-Control-Max-Age", "86400");  // seconds
    response.status = 204;
  }

  // All of the body, or what is wrong with it.
  absl::Status Read(Exchange& e, const httplib::ContentReader& reader) {
    if (!e.request.has_header("Content-Length") && !e.request.has_header("Transfer-Encoding")) {
      return absl::InvalidArgumentError("the request has no body");
    }
    if (e.request.is_multipart_form_data()) {
      reader([](const auto&) { return true; }, [](const char*, size_t) { return true; });
      return absl::InvalidArgumentError("the body is a form, and no JSON object");
    }
    int64_t size = 0;
    const bool read = reader([&](const char* data, size_t n) {
      size += static_cast<int64_t>(n);
      if (size <= options.most_body) e.body.append(data, n);
      return size <= options.most_body * kMostPassedOver;
    });
    if (e.response.status == 413 || size > options.most_body) {
      return absl::OutOfRangeError(
          absl::StrCat("the body has more than ", options.most_body, " bytes"));
    }
    return read ? absl::OkStatus() : absl::InvalidArgumentError("the body could not be read");
  }

  void Dispatch(const httplib::Request& request, httplib::Response& response,
                const httplib::ContentReader* reader) {
    Exchange e{request, response, ""};
    const absl::Status body = reader == nullptr ? absl::OkStatus() : Read(e, *reader);
    response.status = -1;
    absl::string_view path = request.path;
    if (absl::StartsWith(path, "/v1/")) path.remove_prefix(3);
    const Route* at = nullptr;
    for (const Route* r = kRoutes; r->path != nullptr; ++r) {
      if (path == r->path) at = r;
    }
    if (at == nullptr) {
      return Fail(response, absl::NotFoundError("there is nothing at this path; /v1/models and "
                                                "/v1/chat/completions are known, for instance"));
    }
    if (request.method == "OPTIONS" && !options.cors.empty()) return Permit(request, *at, response);
    const std::string method = request.method == "HEAD" ? "GET" : request.method;
    if (method != at->method) {
      response.set_header("Allow", at->method);
      return Fail(response, 405,
                  absl::InvalidArgumentError(absl::StrCat("this path is asked by ", at->method)));
    }
    if (at->answer != &Impl::Health && !MayAsk(request)) {
      response.set_header("WWW-Authenticate", "Bearer");
      return Fail(response, absl::UnauthenticatedError(
                                "the header Authorization has to be \"Bearer \" and the key"));
    }
    if (!body.ok()) return Fail(response, absl::IsOutOfRange(body) ? 413 : 400, body);
    try {
      (this->*at->answer)(e);
    } catch (const std::bad_alloc&) {
      Fail(response, absl::InternalError("out of memory"));
    } catch (const std::exception& error) {
      Fail(response, absl::InternalError(error.what()));
    }
  }

  void SetUp() {
    http.new_task_queue = [this] {
      return new httplib::ThreadPool(static_cast<size_t>(options.connections));
    };
    http.set_payload_max_length(static_cast<size_t>(options.most_body));
    http.set_keep_alive_max_count(1000);
    http.set_keep_alive_timeout(2);  // seconds, which its end waits at most
    http.set_tcp_nodelay(true);
    http.set_socket_options([this](socket_t s) {
      const int yes = 1;  // a port that was left is free, one that is listened at is not
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
      socket = s;
    });
    if (!options.cors.empty()) {
      http.set_default_headers({{"Access-Control-Allow-Origin", options.cors}, {"Vary", "Origin"}});
    }
    const auto plain = [this](const httplib::Request& request, httplib::Response& response) {
      Dispatch(request, response, nullptr);
    };
    const auto with_body = [this](const httplib::Request& request, httplib::Response& response,
                                  const httplib::ContentReader& reader) {
      Dispatch(request, response, &reader);
    };
    http.Get(".*", plain);
    http.Options(".*", plain);
    http.Post(".*", with_body);
    http.Put(".*", with_body);
    http.Patch(".*", with_body);
    http.Delete(".*", with_body);
    http.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      Fail(response, response.status,
           absl::InvalidArgumentError("this is no request that is known"));
    });
    http.set_logger([this](const httplib::Request& request, const httplib::Response& response) {
      Log(request, response);
    });
  }

  absl::Status Listen() {
    port = options.port == 0 ? http.bind_to_any_port(options.host.c_str())
           : http.bind_to_port(options.host.c_str(), options.port) ? options.port
                                                                   : -1;
    if (port < 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen at ", options.host, ":",
                                                 options.port,
                                                 ": another program does, or it is not allowed, or "
                                                 "the host is not this machine"));
    }
    listen(socket, SOMAXCONN);  // the library's 5 make the next client wait for a second
    listening = std::thread([this] {
      http.listen_after_bind();
      ended = true;
    });
    while (!http.is_running() && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return absl::OkStatus();
  }

  ~Impl() {
    service.End();
    http.stop();
    if (listening.joinable()) listening.join();
  }
};

const Server::Impl::Route Server::Impl::kRoutes[] = {
    {"GET", "/health", &Impl::Health},          {"GET", "/models", &Impl::Models},
    {"GET", "/metrics", &Impl::Metrics},        {"POST", "/chat/completions", &Impl::Chat},
    {"POST", "/completions", &Impl::Complete},  {"POST", "/tokenize", &Impl::Tokenize},
    {"POST", "/detokenize", &Impl::Detokenize}, {nullptr, nullptr, nullptr}};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->port; }
bool Server::running() const { return !impl_->ended; }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ApiService& service, Options options) {
  auto impl = std::make_unique<Impl>(service, std::move(options));
  impl->SetUp();
  RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

absl::Status CanServe() { return absl::OkStatus(); }

absl::StatusOr<int> RunServe(const Command& command, const Model& model, Session& session) {
  Engine engine(session, model);
  ApiService::Options options;
  options.name = NameOf(command.model);
  options.context = session.context();
  options.slots = command.slots;
  options.defaults = {command.sampler, command.stops, command.max_tokens};
  options.guessing = command.guessing;
  ApiService service(engine, model, std::move(options));
  Server::Options http;
  http.host = command.host;
  http.port = static_cast<int>(command.port);
  http.key = command.api_key;
  http.cors = command.cors;
  http.connections = command.slots + ApiService::kMostWaiting + 16;
  ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(service, std::move(http)));
  std::signal(SIGTERM, [](int) {
    interrupted = true;
    std::signal(SIGTERM, SIG_DFL);
  });
  const bool v6 = absl::StrContains(command.host, ':');
  const std::string at = absl::StrFormat("http://%s%s%s:%d", v6 ? "[" : "", command.host,
                                         v6 ? "]" : "", server->port());
  std::fprintf(stderr, "llm: ready at %s\n", at.c_str());
  if (command.json) JsonLine().Text("event", "ready").Text("url", at).Print();
  while (!interrupted && server->running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (interrupted) return 130;
  return absl::UnavailableError(absl::StrCat(at, ": the socket failed"));
}

}  // namespace tessera::llm
