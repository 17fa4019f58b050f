// The server over the loopback device, as a client of HTTP sees it.
#include "examples/llm/server.h"

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_split.h"
#include "tests/llm/models.h"
#include "tests/tools/run_tool.h"

#ifdef TESSERA_HAS_HTTP
#include <httplib.h>
#endif

namespace tessera::llm {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

#ifndef TESSERA_HAS_HTTP

TEST(Server, SaysWhichPackageIsMissing) {
  const Outcome o = RunTool("llm", std::string("--serve 0 --model ") + kStory);
  EXPECT_EQ(o.exit, 1);
  EXPECT_THAT(o.out, HasSubstr("install libcpp-httplib-dev"));
}

#else

SessionOptions FourTexts() {
  SessionOptions options;
  options.texts = 4;
  return options;
}

struct Served {
  Model model;
  Session session{model, FourTexts()};
  Engine engine{session, model};
  ApiService service{engine, model, {.name = "story", .context = session.context()}};
  std::unique_ptr<Server> server;

  explicit Served(Server::Options options = {}) : model(*LoadModel(kStory)) {
    options.log = false;
    absl::StatusOr<std::unique_ptr<Server> > started = Server::Start(service, std::move(options));
    EXPECT_OK(started.status());
    server = *std::move(started);
  }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", server->port());
    client.set_read_timeout(60);
    return client;
  }
  httplib::Result Post(const std::string& path, const std::string& body) const {
    return Client().Post(path.c_str(), body, "application/json");
  }
};

constexpr char kOnce[] = R"({"prompt": "Once upon a time", "max_tokens": 4)";

TEST(Server, AnswersEachPath) {
  const Served s;
  httplib::Client client = s.Client();
  client.set_keep_alive(true);
  for (const std::string prefix : {"", "/v1"}) {
    auto r = client.Get((prefix + "/health").c_str());
    ASSERT_TRUE(r);
    EXPECT_EQ(json::parse(r->body)["status"], "ok");
    r = client.Get((prefix + "/models").c_str());
    ASSERT_TRUE(r);
    EXPECT_EQ(json::parse(r->body)["data"][0]["id"], "story");
    EXPECT_EQ(r->get_header_value("Content-Type"), "application/json");
    r = client.Post((prefix + "/completions").c_str(), std::string(kOnce) + "}",
                    "application/json");
    ASSERT_TRUE(r);
    EXPECT_EQ(r->status, 200);
    EXPECT_EQ(json::parse(r->body)["choices"][0]["text"], ", there was a");
    r = client.Post((prefix + "/tokenize").c_str(), R"({"content": "Once"})", "text/plain");
    ASSERT_TRUE(r);
    EXPECT_EQ(r->body, R"({"tokens":[403]})");
    r = client.Post((prefix + "/detokenize").c_str(), R"({"tokens": [403]})", "application/json");
    ASSERT_TRUE(r);
    EXPECT_EQ(r->body, R"({"content":" Once"})");
    r = client.Get((prefix + "/metrics").c_str());
    ASSERT_TRUE(r);
    EXPECT_THAT(r->body, HasSubstr("tessera_llm_requests_total "));
  }
}

TEST(Server, APartIsAnsweredAsOne) {
  const Served s;
  httplib::Client client = s.Client();
  const auto whole = client.Get("/v1/models");
  const auto part = client.Get("/v1/models", httplib::Headers{{"Range", "bytes=0-10"}});
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(whole->status, 200);
  EXPECT_EQ(part->status, 206);
  EXPECT_EQ(part->body, whole->body.substr(0, 11));
}

TEST(Server, StreamsEvents) {
  const Served s;
  const auto r = s.Post("/v1/completions", std::string(kOnce) + R"(, "stream": true})");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->status, 200);
  EXPECT_EQ(r->get_header_value("Content-Type"), "text/event-stream; charset=utf-8");
  const std::vector<std::string> events = absl::StrSplit(r->body, "\n\n");
  ASSERT_GE(events.size(), 4u);
  std::string text;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    ASSERT_EQ(events[i].rfind("data: ", 0), 0u) << events[i];
    text += json::parse(events[i].substr(6))["choices"][0]["text"];
  }
  EXPECT_EQ(text, ", there was a");
  EXPECT_EQ(events[events.size() - 2], "data: [DONE]");
  EXPECT_EQ(events.back(), "");
}

TEST(Server, RefusesAndGoesOn) {
  Server::Options options;
  options.most_body = 1000;
  const Served s(options);
  const auto expect = [](const httplib::Result& r, int status, const char* message) {
    ASSERT_TRUE(r) << message;
    EXPECT_EQ(r->status, status) << message;
    EXPECT_EQ(r->get_header_value("Content-Type"), "application/json");
    const json error = json::parse(r->body)["error"];
    EXPECT_THAT(std::string(error["message"]), HasSubstr(message));
    EXPECT_TRUE(error.contains("type") && error.contains("param") && error.contains("code"));
  };
  constexpr char path[] = "/v1/completions";
  expect(s.Client().Get("/v1/nothing"), 404, "nothing at this path");
  expect(s.Post("/nothing", "{}"), 404, "nothing at this path");
  expect(s.Client().Get(path), 405, "asked by POST");
  expect(s.Client().Put(path, "{}", "application/json"), 405, "asked by POST");
  expect(s.Client().Delete(path), 405, "asked by POST");
  expect(s.Post("/health", "{}"), 405, "asked by GET");
  expect(s.Post(path, R"({"prompt": )"), 400, "the body: byte 11");
  expect(s.Post(path, std::string(900, '[')), 400, "nested deeper");
  expect(s.Post(path, "\xFF"), 400, "the body: byte 0: not UTF-8");
  expect(s.Post(path, R"({"prompt": "a", "top_p": 7})"), 400, "top_p is 7");
  expect(s.Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"), 400,
         "no chat template");
  expect(s.Post(path, std::string(1001, ' ')), 413, "more than 1000 bytes");
  // in chunks, whose number no header tells, and packed
  int chunks = 0;
  expect(s.Client().Post(
             path,
             [&](size_t, httplib::DataSink& sink) {
               const std::string blanks(100, ' ');
               sink.write(blanks.data(), blanks.size());
               if (++chunks == 20) sink.done();
               return true;
             },
             "application/json"),
         413, "more than 1000 bytes");
#ifdef CPPHTTPLIB_ZLIB_SUPPORT
  httplib::Client packs = s.Client();
  packs.set_compress(true);
  expect(packs.Post(path, std::string(50'000, ' '), "application/json"), 413, "more than 1000");
#endif
  const std::string form =
      "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n";
  expect(s.Client().Post(path, form, "multipart/form-data; boundary=x"), 400, "a form");
  const auto r = s.Post(path, std::string(kOnce) + "}");
  ASSERT_TRUE(r);
  EXPECT_EQ(json::parse(r->body)["choices"][0]["text"], ", there was a");
}

TEST(Server, WantsItsKey) {
  Server::Options options;
  options.key = "secret";
  const Served s(options);
  const auto status = [&](const std::string& path, const httplib::Headers& headers) {
    const auto r = s.Client().Get(path.c_str(), headers);
    return r ? r->status : -1;
  };
  EXPECT_EQ(status("/health", {}), 200);
  EXPECT_EQ(status("/v1/models", {}), 401);
  EXPECT_EQ(status("/v1/models", {{"Authorization", "secret"}}), 401);
  for (const char* wrong : {"", "secre", "secreT", "secretsecret"}) {
    EXPECT_EQ(status("/v1/models", {{"Authorization", std::string("Bearer ") + wrong}}), 401);
  }
  EXPECT_EQ(status("/v1/models", {{"Authorization", "Bearer secret"}}), 200);
}

TEST(Server, PagesOfOtherOrigins) {
  Server::Options options;
  options.key = "secret";
  constexpr char origin[] = "Access-Control-Allow-Origin", path[] = "/v1/completions";
  {
    const Served closed(options);
    const auto r = closed.Client().Options(path);
    ASSERT_TRUE(r);
    EXPECT_EQ(r->status, 405);
    EXPECT_FALSE(r->has_header(origin));
  }
  options.cors = "http://page";
  const Served s(options);
  auto r = s.Client().Options(path, {{"Origin", "http://page"},
                                     {"Access-Control-Request-Method", "POST"},
                                     {"Access-Control-Request-Headers", "authorization,x-any"}});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->status, 204);
  EXPECT_EQ(r->get_header_value(origin), "http://page");
  EXPECT_EQ(r->get_header_value("Access-Control-Allow-Methods"), "POST");
  EXPECT_EQ(r->get_header_value("Access-Control-Allow-Headers"), "authorization,x-any");
  r = s.Client().Options("/nothing");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->status, 404);
  const httplib::Headers with_key = {{"Authorization", "Bearer secret"}};
  for (const bool stream : {false, true}) {
    r = s.Client().Post(path, with_key,
                        std::string(kOnce) + (stream ? R"(, "stream": true})" : "}"),
                        "application/json");
    ASSERT_TRUE(r);
    EXPECT_EQ(r->status, 200);
    EXPECT_EQ(r->get_header_value(origin), "http://page");
  }
  r = s.Post(path, "{}");  // without the key: a page is told why
  ASSERT_TRUE(r);
  EXPECT_EQ(r->status, 401);
  EXPECT_EQ(r->get_header_value(origin), "http://page");
}

// Texts that are written for clients that are gone end, or else they would be counted.
TEST(Server, ClientsThatGoEndTheirTexts) {
  const Served s;
  const std::string body = R"({"prompt": "Once", "max_tokens": 500, "n": 18, "temperature": 1)";
  httplib::Client streaming = s.Client();
  std::string got;
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = body + R"(, "stream": true})";
  request.content_receiver = [&](const char* data, size_t n, uint64_t, uint64_t) {
    got.append(data, n);
    return false;
  };
  const auto metrics_at_rest = [&] {
    std::string metrics;
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) {
      metrics = s.Client().Get("/metrics")->body;
      if (metrics.find("texts_running 0\n") != std::string::npos) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_THAT(metrics, HasSubstr("texts_running 0\n"));
    EXPECT_THAT(metrics, HasSubstr("new_tokens_total 0\n"));
    return metrics;
  };
  EXPECT_FALSE(streaming.send(request));
  EXPECT_THAT(got, HasSubstr("data: {"));
  metrics_at_rest();
#ifdef CPPHTTPLIB_VERSION  // older ones have none
  httplib::Client waiting = s.Client();
  waiting.set_read_timeout(0, 50'000);
  EXPECT_FALSE(waiting.Post("/v1/completions", body + "}", "application/json"));
  EXPECT_THAT(metrics_at_rest(), HasSubstr("requests_total 2\n"));
#else
  GTEST_SKIP() << "while a client waits, this version of cpp-httplib cannot tell that it has gone";
#endif
}

TEST(Server, ManyClientsAtOnce) {
  const Served s;
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&, i] {
      const auto r =
          s.Post("/v1/completions", std::string(kOnce) + (i % 2 ? R"(, "stream": true})" : "}"));
      if (r && r->status == 200 && r->body.find(" was") != std::string::npos) ++right;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 12);
}

TEST(Server, EndsWhileTextsAreWritten) {
  std::thread client;
  {
    const Served s;
    client = std::thread([http = s.Client()]() mutable {
      http.Post("/v1/completions", R"({"prompt": "Once", "max_tokens": 500, "n": 32})",
                "application/json");
    });
    while (s.engine.load().running == 0) std::this_thread::yield();
  }
  client.join();
}

TEST(Server, APortThatIsTaken) {
  const Served s;
  Server::Options options;
  options.port = s.server->port();
  Session session(s.model, {});
  Engine engine(session, s.model);
  ApiService service(engine, s.model, {});
  EXPECT_THAT(Server::Start(service, options).status(),
              StatusIs(absl::StatusCode::kUnavailable, "cannot listen at 127.0.0.1:"));
}

// The program: what it prints, and that a signal ends it well while a text is written.
TEST(Server, SignalsEndTheProgram) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string command = std::string("echo $$; exec ") + kBinDir + "/llm --model " + kStory +
                                " --serve 0 --json 2>&1";
    FILE* out = popen(command.c_str(), "r");
    ASSERT_NE(out, nullptr);
    char line[4096];
    ASSERT_NE(fgets(line, sizeof(line), out), nullptr);
    const pid_t pid = std::atoi(line);
    std::string url;
    while (url.empty() && fgets(line, sizeof(line), out) != nullptr) {
      if (line[0] == '{') url = json::parse(line)["url"];
    }
    EXPECT_EQ(url.rfind("http://127.0.0.1:", 0), 0u);
    httplib::Client client(url);
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = R"({"prompt": "Once", "max_tokens": 500, "n": 32, "stream": true})";
    bool sent = false;
    request.content_receiver = [&](const char*, size_t, uint64_t, uint64_t) {
      if (!sent) kill(pid, signal);
      sent = true;
      return true;
    };
    client.send(request);
    EXPECT_TRUE(sent);
    while (fgets(line, sizeof(line), out) != nullptr) {
    }
    EXPECT_EQ(WEXITSTATUS(pclose(out)), 130);
  }
}

#endif

}  // namespace
}  // namespace tessera::llm
