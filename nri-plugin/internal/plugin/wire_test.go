// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"io"
	"net"
	"os"
	"path"
	"sync"
	"testing"
)

// wire passes bytes between the socket that plugins know and the runtime's own, and can be cut: a stopped adaptation
// leaves its connections open, which a killed runtime cannot.
type wire struct {
	behind string
	l      net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
	isCut  bool
}

func listen(t testing.TB, socket string) *wire {
	t.Helper()
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	must(t, err)
	w := &wire{behind: path.Join(t.TempDir(), "n.sock"), l: l}
	w.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", w.behind)
			if err != nil {
				_ = in.Close()
				continue
			}
			w.join(in, out)
		}
	})
	t.Cleanup(w.cut)
	return w
}

func (w *wire) join(in, out net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		_, _ = in.Close(), out.Close()
		return
	}
	w.conns = append(w.conns, in, out)
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		w.wg.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = pair[0].Close(), pair[1].Close()
		})
	}
}

func (w *wire) cut() {
	_ = w.l.Close()
	w.mu.Lock()
	w.isCut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}
