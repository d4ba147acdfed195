// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// stream forwards a request that may turn its connection into a raw stream. The daemon's answer decides: after 101, or a
// raw-stream reply without length (clients that send no Upgrade header), bytes are joined both ways; anything else is an
// ordinary reply, after which the client's connection is good for the next request.
func (p *Proxy) stream(w http.ResponseWriter, r *http.Request) {
	backend, err := p.backend.dial(context.WithoutCancel(r.Context())) // a client that sends no more may still listen
	if err != nil {
		p.unanswered(w, r, err)
		return
	}
	defer backend.Close()
	waiting, release := outlastHalfClose(r)
	defer release()
	leave := context.AfterFunc(waiting.Context(), func() { _ = backend.Close() }) // nobody wants the reply of a daemon that hangs
	defer leave()
	resp, from, err := exchangeHeads(backend, r)
	if err != nil {
		p.unanswered(w, r, err)
		return
	}
	if !raw(resp) {
		relay(w, resp)
		return
	}
	leave() // the tunnel sees for itself who has gone
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.unanswered(w, r, fmt.Errorf("take over the client's connection: %w", err))
		return
	}
	defer conn.Close()
	client, ok := conn.(*net.UnixConn)
	if !ok {
		p.options.Log.Warn("docker stream", "error", "the client's connection is no unix socket")
		return
	}
	if err := writeHead(client, resp); err != nil {
		return // the client is gone
	}
	t := &tunnel{client: client, backend: backend}
	p.track(t, true)
	defer p.track(t, false)
	t.join(rw.Reader, from)
}

// exchangeHeads sends the request and reads the head of the reply. from holds what follows it.
func exchangeHeads(backend *net.UnixConn, r *http.Request) (*http.Response, *bufio.Reader, error) {
	out := r.Clone(r.Context())
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // keeps Go from adding one
	}
	if err := out.Write(backend); err != nil {
		return nil, nil, err
	}
	from := bufio.NewReader(backend)
	for {
		resp, err := http.ReadResponse(from, out)
		if err != nil {
			return nil, nil, err
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, from, nil
		}
	}
}

func raw(resp *http.Response) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	return resp.StatusCode == http.StatusOK && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Type"), "application/vnd.docker.")
}

// relay passes an ordinary reply on.
func relay(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	for k, v := range resp.Header {
		if k != "Connection" {
			w.Header()[k] = v
		}
	}
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if flush.Flush() != nil {
				return
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the client must see that the reply is cut
		}
	}
}

func writeHead(w io.Writer, resp *http.Response) error {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/%d.%d %s\r\n", resp.ProtoMajor, resp.ProtoMinor, resp.Status)
	if err := resp.Header.Write(&b); err != nil {
		return err
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// tunnel joins two connections.
type tunnel struct{ client, backend *net.UnixConn }

// join copies both ways until either side has hung up. The readers may hold bytes that were read ahead.
func (t *tunnel) join(fromClient, fromBackend io.Reader) {
	var wg sync.WaitGroup
	wg.Go(func() { t.pump(t.backend, t.client, fromClient) })
	t.pump(t.client, t.backend, fromBackend)
	wg.Wait()
}

// pump copies one way. At the end of src its half-close is passed on and the other way goes on, until src is closed for
// good. When dst does not take more, the other way still delivers what dst had to say and then finds it closed.
func (t *tunnel) pump(dst, src *net.UnixConn, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.close()
			return
		}
	}
	if dst.CloseWrite() != nil {
		return
	}
	awaitHangup(src)
	t.close()
}

// close ends both connections; what has been written can still be read at the other end of a unix socket.
func (t *tunnel) close() {
	_ = t.client.Close() // may be closed already
	_ = t.backend.Close()
}

// awaitHangup waits until both directions of a connection are shut, or it is closed here. The end of a read tells only that
// the peer sends no more; poll(2) reports POLLHUP when a unix peer is gone (net/unix/af_unix.c, unix_poll).
func awaitHangup(c *net.UnixConn) {
	conn, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(hungUp) // its error says that c was closed here
}

func hungUp(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	for {
		_, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err != nil || fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
		}
	}
}

func (p *Proxy) track(t *tunnel, add bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if add {
		p.tunnels[t] = struct{}{}
		return
	}
	delete(p.tunnels, t)
}

func (p *Proxy) closeTunnels() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.tunnels {
		t.close()
	}
}
