// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// ponder is a Handler that has a message until it is told.
type ponder struct {
	wantAll
	has, done chan struct{}
}

func (p ponder) Request(context.Context, *Call, []byte) Verdict {
	close(p.has)
	<-p.done
	return Verdict{}
}

// A backend that does not know a method answers before it has the message. The client hears of it when the Handler is done.
func TestEarlyAnswerWaitsForTheHandler(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]bool{"decided": false, "client resets": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ponder{wantAll{all}, make(chan struct{}), make(chan struct{})}
			w := newWire(t, Config{Handler: h})
			defer w.finish(t)
			send := func(c net.Conn, frames ...[]byte) {
				t.Helper()
				if _, err := c.Write(bytes.Join(frames, nil)); err != nil {
					t.Fatal(err)
				}
			}
			expect := func(c net.Conn, want []byte) {
				t.Helper()
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("got %x want %x: %v", got, want, err)
				}
			}
			// The message comes after the answer to its call.
			msg := message("resize")
			send(w.client, hello(), headersFrame(1, "/new", 0))
			expect(w.backend, append(hello(), headersFrame(1, "/new", 0)...))
			answer := appendRejection(nil, 1, &Rejection{Code: 12}, false)
			send(w.backend, appendSettings(nil), answer)
			send(w.client, appendData(nil, 1, msg, true))
			expect(w.client, appendSettings(nil))
			<-h.has
			_ = w.client.SetReadDeadline(time.Now().Add(3 * rest))
			if n, err := w.client.Read(make([]byte, 1)); n != 0 || !os.IsTimeout(err) {
				t.Errorf("the client has the answer, or an error, while the Handler has the message: %d, %v", n, err)
			}
			if reset {
				send(w.client, appendReset(nil, 1, codeCancel))
				expect(w.client, answer)
			}
			close(h.done)
			if !reset {
				expect(w.client, answer)
			}
		})
	}
}
