//// 00.1 two loops
inline void go_around(Communicator& group, std::vector<Tensor>& chunks, const Arrival& arrived) {
  const int n = group.num_devices();
  const int me = group.device_id();
  const int right = (me + 1) % n;
  int leaving = (me - 1 + n) % n;
  for (int step = 1; step <= n - 1; ++step) {
    const int coming = (leaving - 1 + n) % n;
    Tensor buffer = Tensor::uninitialized(chunks[static_cast<std::size_t>(coming)].shape());
    Future<> sent = group.send_async(chunks[static_cast<std::size_t>(leaving)], buffer, right);
    sent.wait();
    chunks[static_cast<std::size_t>(coming)] =
        add(std::move(chunks[static_cast<std::size_t>(coming)]), buffer);
    arrived(step, static_cast<std::size_t>(coming));
    leaving = coming;
  }
  for (int step = n; step <= 2 * n - 2; ++step) {
    const int coming = (leaving - 1 + n) % n;
    Tensor buffer = Tensor::uninitialized(chunks[static_cast<std::size_t>(coming)].shape());
    group.send_async(chunks[static_cast<std::size_t>(leaving)], buffer, right).wait();
    chunks[static_cast<std::size_t>(coming)] = std::move(buffer);
    arrived(step, static_cast<std::size_t>(coming));
    leaving = coming;
  }
}
//// 00.1 post send and receive
inline void go_around(Communicator& group, std::vector<Tensor>& chunks, const Arrival& arrived) {
  const int n = group.num_devices(), me = group.device_id();
  const int left = (me + n - 1) % n, right = (me + 1) % n;
  for (int step = 1; step < 2 * n - 1; ++step) {
    const auto out = static_cast<std::size_t>((me - step + 2 * n) % n);
    const auto in = static_cast<std::size_t>((me - step - 1 + 2 * n) % n);
    Future<> sent = group.post_send(right, chunks[out].clone());
    Tensor came = group.post_receive(left, chunks[in].shape()).get();
    sent.wait();
    if (step < n) came = add(std::move(came), chunks[in]);
    chunks[in] = std::move(came);
    arrived(step, in);
  }
}
//// 00.1 odd ones receive first
inline void go_around(Communicator& group, std::vector<Tensor>& chunks, const Arrival& arrived) {
  const int n = group.num_devices(), me = group.device_id();
  for (int step = 1; step <= 2 * (n - 1); ++step) {
    std::size_t sends = static_cast<std::size_t>(((me - step) % n + n) % n);
    std::size_t takes = static_cast<std::size_t>(((me - step - 1) % n + n) % n);
    Tensor incoming;
    if (me % 2 == 0) {
      group.send((me + 1) % n, chunks[sends]);
      incoming = group.receive((me + n - 1) % n);
    } else {
      incoming = group.receive((me + n - 1) % n);
      group.send((me + 1) % n, chunks[sends]);
    }
    chunks[takes] = step < n ? add(std::move(incoming), chunks[takes]) : std::move(incoming);
    arrived(step, takes);
  }
}
//// 00.1 buffers of all chunks, and a helper
inline std::size_t wrapped(int k, int n) {
  while (k < 0) k += n;
  return static_cast<std::size_t>(k % n);
}
inline void go_around(Communicator& group, std::vector<Tensor>& chunks, const Arrival& arrived) {
  const int n = group.num_devices(), me = group.device_id();
  std::vector<Tensor> buffers;
  for (const Tensor& chunk : chunks) buffers.emplace_back(chunk.shape());
  int step = 1;
  while (step <= 2 * (n - 1)) {
    const std::size_t from_left = wrapped(me - step - 1, n);
    auto future = group.send_async(chunks[wrapped(me - step, n)], buffers[from_left],
                                   static_cast<int>(wrapped(me + 1, n)));
    future.wait();
    if (step <= n - 1)
      chunks[from_left] = add(std::move(chunks[from_left]), buffers[from_left]);
    else
      std::swap(chunks[from_left], buffers[from_left]);
    arrived(step++, from_left);
  }
}
//// 00.1 one device returns at once
inline void go_around(Communicator& group, std::vector<Tensor>& chunks, const Arrival& arrived) {
  const auto n = static_cast<std::size_t>(group.num_devices());
  if (n == 1) return;
  std::size_t mine = (static_cast<std::size_t>(group.device_id()) + n - 1) % n;
  const int to = (group.device_id() + 1) % group.num_devices();
  for (std::size_t step = 1; step < 2 * n - 1; ++step) {
    const std::size_t next = (mine + n - 1) % n;
    Tensor received(chunks[next].shape());
    group.send_async(chunks[mine], received, to).get();
    if (step < n) {
      Tensor sum = add(chunks[next].clone(), received);
      chunks[next] = std::move(sum);
    } else {
      chunks[next] = received.clone();
    }
    arrived(static_cast<int>(step), next);
    mine = next;
  }
}
