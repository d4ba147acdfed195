// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// credits is the strict bookkeeping of one end: window is what may still be sent, for the connection (0) and each stream.
type credits struct {
	mu     sync.Mutex
	cond   *sync.Cond
	window map[uint32]int64
	init   int64
	over   bool
}

func newCredits(init int64) *credits {
	c := &credits{window: map[uint32]int64{0: initialWindow}, init: init}
	c.cond = sync.NewCond(&c.mu)
	return c
}

func (c *credits) of(stream uint32) int64 {
	if v, ok := c.window[stream]; ok {
		return v
	}
	return c.init
}

func (c *credits) add(stream uint32, n int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window[stream] = c.of(stream) + n
	c.cond.Broadcast()
	return c.window[stream]
}

// wait returns when the stream has credit; false: there will be none.
func (c *credits) wait(stream uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for min(c.of(0), c.of(stream)) <= 0 && !c.over {
		c.cond.Wait()
	}
	return !c.over
}

func (c *credits) end() {
	c.mu.Lock()
	c.over = true
	c.cond.Broadcast()
	c.mu.Unlock()
}

// apply puts a new SETTINGS_INITIAL_WINDOW_SIZE into force and returns the streams left with at most low.
func (c *credits) apply(init, low int64) (poor []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.window {
		if id == 0 {
			continue
		}
		if c.window[id] += init - c.init; c.window[id] <= low {
			poor = append(poor, id)
		}
	}
	c.init = init
	c.cond.Broadcast()
	return poor
}

// spend takes at most most of the credit there is.
func (c *credits) spend(stream uint32, most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := max(min(int64(most), c.of(0), c.of(stream)), 0)
	c.window[0] -= n
	c.window[stream] = c.of(stream) - n
	return int(n)
}

// miser is a backend that counts every byte against the credit it gave and gives as late as it may: only what leaves less than a quarter.
type miser struct {
	t      *testing.T
	fr     *http2.Framer
	given  *credits
	window int64
	later  int64 // the window it turns to when a third of the streams is done
	acks   int
	got    map[uint32][]byte
	ended  map[uint32]bool
}

func (m *miser) setWindow(v int64) {
	_ = m.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(v)})
}

// acked is the moment from which the client's side obeys the new window.
func (m *miser) acked() {
	if m.acks++; m.acks != 2 {
		return
	}
	m.window = m.later
	for _, id := range m.given.apply(m.window, m.window/4) {
		if !m.ended[id] {
			left := m.given.of(id)
			m.given.add(id, m.window-left)
			_ = m.fr.WriteWindowUpdate(id, uint32(m.window-left))
		}
	}
}

func (m *miser) run(streams int) {
	for len(m.ended) < streams {
		f, err := m.fr.ReadFrame()
		if err != nil {
			m.t.Errorf("backend: %v after %d of %d streams", err, len(m.ended), streams)
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				m.acked()
				continue
			}
			_ = m.fr.WriteSettingsAck()
		case *http2.DataFrame:
			m.data(f)
			if f.StreamEnded() && len(m.ended) == streams/3 {
				m.setWindow(m.later)
			}
		}
	}
}

func (m *miser) data(f *http2.DataFrame) {
	n := int64(f.Length)
	for _, id := range []uint32{0, f.StreamID} {
		left := m.given.add(id, -n)
		if left < 0 {
			m.t.Errorf("stream %d: %d bytes beyond the credit", id, -left)
		}
		whole := m.window
		if id == 0 {
			whole = initialWindow
		}
		if left <= whole/4 && (id == 0 || !f.StreamEnded()) {
			m.given.add(id, whole-left)
			_ = m.fr.WriteWindowUpdate(id, uint32(whole-left))
		}
	}
	m.got[f.StreamID] = append(m.got[f.StreamID], f.Data()...)
	if f.StreamEnded() {
		m.ended[f.StreamID] = true
	}
}

func grown(msg []byte) []byte {
	n := int(binary.BigEndian.Uint32(msg))
	return bytes.Repeat([]byte{msg[4]}, n)
}

type growing struct{ wantAll }

func (growing) Wants(path string) bool { return path == "/want" }
func (growing) Request(_ context.Context, _ *Call, msg []byte) Verdict {
	return Verdict{Message: grown(msg)}
}

func prefixed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// Both ends keep exact books of credit: no byte beyond it, none lost, and in the end both agree but for what waits for the next grant.
func TestCreditAgainstStrictEnds(t *testing.T) {
	t.Parallel()
	for _, w := range [][2]int64{{1, 2}, {700, 65535}, {65535, 65535}, {65535, 300}, {3000, 500000}} {
		strictEnds(t, w[0], w[1])
	}
}

// spender is a client that sends only what it has credit for, in frames of odd sizes, some padded.
type spender struct {
	t       *testing.T
	nc      *net.UnixConn
	fr      *http2.Framer
	mine    *credits
	settled chan struct{}

	wmu  sync.Mutex // of the writing side; what is spent under it is written under it
	next uint32
	want map[uint32][]byte
}

func newSpender(t *testing.T, nc *net.UnixConn) *spender {
	t.Helper()
	s := &spender{t: t, nc: nc, fr: http2.NewFramer(nc, nc), mine: newCredits(initialWindow), settled: make(chan struct{}),
		next: 1, want: map[uint32][]byte{}}
	if _, err := nc.Write(hello()); err != nil {
		t.Fatal(err)
	}
	go s.read()
	<-s.settled
	return s
}

// call sends one request, of which the backend is to get want.
func (s *spender) call(path string, body, want []byte, pad bool) {
	s.wmu.Lock()
	id := s.next
	s.next += 2
	s.want[id] = want
	_, err := s.nc.Write(headersFrame(id, path, 0))
	s.wmu.Unlock()
	for err == nil && len(body) > 0 {
		if !s.mine.wait(id) {
			s.t.Errorf("stream %d: the connection ended with %d bytes to send", id, len(body))
			return
		}
		s.wmu.Lock()
		n := s.mine.spend(id, min(len(body), 9000))
		switch {
		case n == 0: // somebody else was quicker
		case pad && n > 4:
			n -= 4
			err = s.fr.WriteDataPadded(id, false, body[:n], make([]byte, 3))
		default:
			err = s.fr.WriteData(id, len(body) == n, body[:n])
		}
		s.wmu.Unlock()
		body = body[n:]
	}
	if err != nil {
		s.t.Errorf("client: %v", err)
	}
}

// read follows what the relay grants.
func (s *spender) read() {
	defer s.mine.end()
	var once sync.Once
	for {
		f, err := s.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			s.mine.add(f.StreamID, int64(f.Increment))
		case *http2.SettingsFrame:
			if f.IsAck() {
				continue
			}
			v, _ := f.Value(http2.SettingInitialWindowSize)
			s.wmu.Lock()
			s.mine.apply(int64(v), 0)
			_ = s.fr.WriteSettingsAck()
			s.wmu.Unlock()
			once.Do(func() { close(s.settled) })
		}
	}
}

// calls sends n requests that are intercepted; small keeps them short.
func (s *spender) calls(n int, r *rand.Rand, small bool) {
	for range n {
		msg, size := make([]byte, 5+r.IntN(6000)), r.IntN(9000)
		if small {
			msg, size = msg[:min(len(msg), 60)], size%100
		}
		binary.BigEndian.PutUint32(msg, uint32(size))
		msg[4] = byte(r.Uint32())
		s.call("/want", prefixed(msg), prefixed(grown(msg)), r.IntN(2) == 0)
	}
}

func strictEnds(t *testing.T, window, later int64) {
	const calls, workers = 120, 4
	w := newWire(t, Config{Handler: growing{wantAll{all}}, Events: func(e Event) { t.Errorf("event %s: %v", e.Kind, e.Err) }})
	small := window < 100
	end := time.Now().Add(2 * time.Minute)
	_ = w.client.SetDeadline(end)
	_ = w.backend.SetDeadline(end)
	m := &miser{t: t, window: window, later: later, given: newCredits(window), got: map[uint32][]byte{}, ended: map[uint32]bool{}}
	m.fr = http2.NewFramer(w.backend, w.backend)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.ReadFull(w.backend, make([]byte, len(preface))); err != nil {
			t.Errorf("preface: %v", err)
			return
		}
		m.setWindow(window)
		m.run(calls + 2)
	})
	s := newSpender(t, w.client)
	for range 2 {
		body := bytes.Repeat([]byte("plain"), 20000)
		if small { // each byte is a grant of its own
			body = body[:5000]
		}
		wg.Go(func() { s.call("/plain", body, body, false) })
	}
	for worker := range workers {
		wg.Go(func() { s.calls(calls/workers, rand.New(rand.NewPCG(uint64(worker), uint64(window))), small) })
	}
	wg.Wait()
	for id, b := range s.want {
		if !bytes.Equal(m.got[id], b) {
			t.Errorf("window %d stream %d: got %d bytes, want %d", window, id, len(m.got[id]), len(b))
		}
	}
	checkBalance(t, w.conn, m.given.of(0))
	w.finish(t)
}

// checkBalance waits for the backend's last WINDOW_UPDATE and checks that nothing is lost or left.
func checkBalance(t *testing.T, c *conn, given int64) {
	t.Helper()
	var flow balance
	var waiting, held int
	balanced := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		flow, waiting, held = c.flow, len(c.waiting), c.held
		return flow.queued == 0 && waiting == 0 && held == 0 && -flow.debt() < grantBatch && flow.backend == given
	}
	for stop := time.Now().Add(time.Minute); !balanced() && time.Now().Before(stop); {
		time.Sleep(time.Millisecond)
	}
	if !balanced() {
		t.Errorf("balance %+v debt %d waiting %d held %d, backend says %d", flow, flow.debt(), waiting, held, given)
	}
}

// Trailers of the client wait for the DATA in front of them, and a stream the backend has ended is taken to its end.
func TestClientTrailersAndEarlyEnd(t *testing.T) {
	t.Parallel()
	w := newWire(t, Config{Handler: wantAll{all}})
	defer w.finish(t)
	send := func(c net.Conn, b []byte) {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(c *net.UnixConn, b []byte) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		got := make([]byte, len(b))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("got %x want %x: %v", got, b, err)
		}
	}
	half := message("half")[:7]
	trailers := headersFrame(1, "", flagEndStream)
	send(w.client, bytes.Join([][]byte{hello(), headersFrame(1, "/a", 0), appendData(nil, 1, half, false), trailers}, nil))
	expect(w.backend, bytes.Join([][]byte{hello(), headersFrame(1, "/a", 0), appendData(nil, 1, half, false), trailers}, nil))

	send(w.client, append(headersFrame(3, "/b", 0), appendData(nil, 3, half, false)...))
	expect(w.backend, headersFrame(3, "/b", 0))
	answer := appendRejection(appendSettings(nil), 3, &Rejection{Code: 12}, false)
	send(w.backend, answer)
	expect(w.client, answer)
	send(w.client, append(appendData(nil, 3, half, false), appendData(nil, 3, half, true)...))
	expect(w.backend, appendData(nil, 3, nil, true))
	send(w.client, appendSettings(nil))
	expect(w.backend, appendSettings(nil))
}
