"""A host of models that always answers with the same words and keeps what it was asked.

It speaks as much of OpenAI's Responses, OpenAI's Chat Completions, Anthropic's Messages and Gemini's generateContent as the agents
need to take one turn. What was asked stands in `Model.requests`, as pairs of a path and a document.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = "The mock model has read it."


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """An agent that ends closes its connections as it likes."""


class Model:
    """Serves on a port of this machine until it is closed."""

    def __init__(self):
        self.requests = []
        self.server = Server(("127.0.0.1", 0), handler(self.requests))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def handler(requests):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            model = {"id": "mock-model", "object": "model"}
            self.document({"object": "list", "data": [model], "models": []})

        def do_HEAD(self):
            self.document({})

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                asked = json.loads(body)
            except ValueError:
                asked = {}
            path = self.path.split("?")[0].rstrip("/")
            requests.append((path, asked))
            streams = asked.get("stream") or "stream" in path.lower()
            events, document = answer(path, asked)
            if streams:
                self.events(events)
            else:
                self.document(document)

        def document(self, document):
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def events(self, events):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for event in events:
                name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
                data = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(f"{name}data: {data}\n\n".encode())
            self.wfile.flush()
            self.close_connection = True

    return Handler


def answer(path, asked):
    """The answer in the words of the interface that was asked: as events, and as one document."""
    if path.endswith("/responses"):
        return responses()
    if path.endswith("/chat/completions"):
        return completions()
    if "generateContent" in path or "GenerateContent" in path:
        return gemini()
    if path.endswith("/messages"):
        return messages(asked)
    if path.endswith("/count_tokens"):
        return [], {"input_tokens": 100}
    return [], {}


def responses():
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": ANSWER, "annotations": []}]}
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 105}
    done = {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ], done


def completions():
    base = {"id": "chatcmpl-1", "created": 1, "model": "mock-model"}
    message = {"role": "assistant", "content": ANSWER}
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    chunk = {**base, "object": "chat.completion.chunk"}
    return [
        {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage},
        "[DONE]",
    ], {**base, "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


def gemini():
    document = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": ANSWER}]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 5, "totalTokenCount": 105},
        "modelVersion": "mock-model",
    }
    return [document], document


def messages(asked):
    usage = {"input_tokens": 100, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model"), "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage}
    block = {"type": "text", "text": ANSWER}
    return [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ], {**head, "content": [block], "stop_reason": "end_turn"}
