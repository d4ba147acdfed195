// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sockdiag

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// pod is a network namespace with a thread in it and some connections from an address of its own to another one.
type pod struct {
	tid   int
	conns []net.Conn
}

// newPod makes a namespace in which every address of 10.0.0.0/8 is at hand, and connections in pairs.
func newPod(t testing.TB, pairs int) *pod {
	t.Helper()
	p := &pod{}
	end := make(chan struct{})
	made := make(chan error)
	aside(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.tid = unix.Gettid()
			if err = loopback(); err == nil {
				err = p.connect(pairs)
			}
		}
		made <- err
		<-end
	})
	err := <-made
	t.Cleanup(func() {
		for _, c := range p.conns {
			c.Close()
		}
		close(end)
	})
	kerneltest.Permitted(t, err, unix.CAP_SYS_ADMIN)
	return p
}

// loopback gives the loopback an address whose whole network the kernel then takes for its own.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	address, err := unix.NewIfreq("lo")
	if err == nil {
		err = address.SetInet4Addr([]byte{10, 9, 0, 1})
	}
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCSIFADDR, address)
	}
	if err != nil {
		return err
	}
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up)
}

// connect is done by the thread in the namespace, where sockets are born.
func (p *pod) connect(pairs int) error {
	l, err := net.Listen("tcp4", "10.9.0.2:0")
	if err != nil {
		return err
	}
	defer l.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 9, 0, 1)}}
	for range pairs {
		out, err := d.Dial("tcp4", l.Addr().String())
		if err != nil {
			return err
		}
		p.conns = append(p.conns, out)
		in, err := l.Accept()
		if err != nil {
			return err
		}
		p.conns = append(p.conns, in)
	}
	return nil
}

// talk sends a byte each way on every connection, so that each end has sent and heard something.
func (p *pod) talk(t testing.TB) {
	t.Helper()
	var b [1]byte
	for i := 0; i < len(p.conns); i += 2 {
		for _, pair := range [...][2]net.Conn{{p.conns[i], p.conns[i+1]}, {p.conns[i+1], p.conns[i]}} {
			_, err := pair[0].Write(b[:])
			if err == nil {
				_, err = pair[1].Read(b[:])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func open(t testing.TB) *Looker {
	t.Helper()
	l, err := Open("/proc")
	if err != nil {
		var unsupported *proc.UnsupportedError
		if !errors.As(err, &unsupported) || !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		if errors.Is(err, os.ErrPermission) {
			kerneltest.Permitted(t, err, unix.CAP_SYS_ADMIN)
		}
		t.Log(err)
		kerneltest.StepAside(t, kerneltest.Unbuilt("CONFIG_INET_DIAG"))
	}
	t.Cleanup(l.Close)
	return l
}

// answer asks and waits.
func answer(t testing.TB, l *Looker, limit time.Duration, questions ...Question) *Batch {
	t.Helper()
	if !l.Ask(&Batch{Questions: questions, Limit: limit}) {
		t.Fatal("it is busy")
	}
	if l.Ask(&Batch{}) {
		t.Fatal("two batches at once")
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if b := l.Take(); b != nil {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatal("no answer")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestKernel asks the running kernel about namespaces of our own: who has connections that talk has a round trip time, and the
// thread that looks goes home.
func TestKernel(t *testing.T) {
	l := open(t)
	busy, quiet := newPod(t, 3), newPod(t, 0)
	busy.talk(t)
	b := answer(t, l, time.Minute, Question{busy.tid, time.Minute}, Question{quiet.tid, time.Minute}, Question{os.Getpid(), time.Minute},
		Question{1 << 30, time.Minute})
	if len(b.Answers) != 4 || b.Spent <= 0 {
		t.Fatalf("%+v", b)
	}
	if a := b.Answers[0]; a.Err != nil || a.Connections != 6 || a.RTT <= 0 || a.RTT > time.Minute {
		t.Errorf("three pairs of connections: %+v", a)
	}
	for i, what := range []string{"without connections", "our own namespace", "no process"} {
		if a := b.Answers[i+1]; a != (Answer{}) {
			t.Errorf("%s: %+v", what, a)
		}
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	// Threads of other tests may be about to end.
	for deadline := time.Now().Add(time.Minute); elsewhere(t, home) != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d threads are in namespaces of others, two of them are the pods'", elsewhere(t, home))
		}
	}
	// What has been quiet since is not new.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		a := answer(t, l, time.Minute, Question{busy.tid, 0}).Answers[0]
		if a == (Answer{}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("old round trips are told: %+v", a)
		}
	}
	if b := answer(t, l, 0, Question{busy.tid, time.Minute}); len(b.Answers) != 0 {
		t.Errorf("%d answers without a budget", len(b.Answers))
	}
}

// TestOwnNamespace: a process that has the number of one that ended, and is in our own namespace, is nobody's pod.
func TestOwnNamespace(t *testing.T) {
	open(t) // or steps aside
	p := newPod(t, 0)
	type look struct {
		there bool
		err   error
	}
	looks := make(chan look)
	aside(func() {
		defer close(looks)
		th, err := newThread("/proc")
		if err != nil {
			looks <- look{err: err}
			return
		}
		defer th.close()
		for _, pid := range []int{os.Getpid(), 1 << 30, p.tid} {
			there, err := th.enter(pid)
			looks <- look{there, err}
		}
	})
	var got []look
	for l := range looks {
		got = append(got, l)
	}
	if !slices.Equal(got, []look{{}, {}, {there: true}}) {
		t.Errorf("our own, nobody, a pod: %+v", got)
	}
}

// elsewhere counts the threads of this process that are not in a namespace.
func elsewhere(t *testing.T, home string) (n int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		ns, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net")
		if err == nil && ns != home {
			n++
		}
	}
	return n
}

// TestLostThread: a thread that is not at home answers nothing more.
func TestLostThread(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	if a := (&thread{lost: lost, fs: proc.FS(t.TempDir())}).look(Question{PID: 1}); !errors.Is(a.Err, lost) {
		t.Errorf("%+v", a)
	}
}

// BenchmarkLook is one pod with some connections; the kernel's table of all connections is walked for each.
func BenchmarkLook(b *testing.B) {
	l := open(b)
	for _, pairs := range []int{0, 20} {
		p := newPod(b, pairs)
		p.talk(b)
		b.Run(strconv.Itoa(2*pairs)+"-connections", func(b *testing.B) {
			var spent time.Duration
			for b.Loop() {
				spent += answer(b, l, time.Minute, Question{p.tid, time.Hour}).Spent
			}
			b.ReportMetric(float64(spent.Nanoseconds())/1000/float64(b.N), "cpu-us/op")
		})
	}
}
