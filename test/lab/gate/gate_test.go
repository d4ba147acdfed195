// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package gate

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// While the gate is shut a program's writes below the directory wait, and only those: it says so itself on its standard output.
func TestGate(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	held, free := filepath.Join(dir, "held"), filepath.Join(other, "free")
	cmd := exec.Command("sh", "-c", `read x; echo 1 > "$0"; echo first; read x; (echo 2 > "$0"; echo second) & echo 2 > "$1"; echo beside; wait`, held, free)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, write, err := os.Pipe() // cmd's own would be closed at its end, read or not
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	cmd.Stdout = write
	g, exited, err := Start(cmd, dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
	out := bufio.NewReader(pipe)
	says := func(want string) {
		t.Helper()
		if line, err := out.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("the program says %q, %v; want %q", line, err, want)
		}
	}
	content := func(path, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s holds %q, %v; want %q", filepath.Base(path), text, err, want)
		}
	}
	_, _ = io.WriteString(in, "\n")
	says("first")
	content(held, "1\n")
	g.Shut()
	_, _ = io.WriteString(in, "\n")
	says("beside")
	content(free, "2\n")
	for deadline := time.Now().Add(time.Minute); g.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no write waits")
		}
	}
	content(held, "") // opened and cut by the shell, not written
	g.Open()
	says("second")
	content(held, "2\n")
	if n := g.Waiting(); n != 0 {
		t.Errorf("%d writes wait at an open gate", n)
	}
}

// Go interrupts its threads with signals, and the kernel then answers the gate with errors that mean nothing: the listener must neither
// be given up, which the program would see as ENOSYS, nor an answer be lost, which it would wait for.
func TestGateInterrupted(t *testing.T) {
	const writers, writes = 16, 4000
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `for i in $(seq $1); do (for j in $(seq $2); do echo $j >> "$0/$i" || exit 1; done) & done; wait`,
		dir, strconv.Itoa(writers), strconv.Itoa(writes))
	_, exited, err := Start(cmd, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
	written := func() (sum int64) {
		for i := range writers {
			if st, err := os.Stat(filepath.Join(dir, strconv.Itoa(i+1))); err == nil {
				sum += st.Size()
			}
		}
		return sum
	}
	had, moved := written(), time.Now()
	for over := false; !over; {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			if tid, err := strconv.Atoi(thread.Name()); err == nil {
				_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // the runtime's own signal; a thread may have ended
			}
		}
		select {
		case <-exited:
			over = true
		default:
		}
		if has := written(); has != had {
			had, moved = has, time.Now()
		}
		if time.Since(moved) > time.Minute { // however slow a starved machine is, it writes something
			t.Fatal("a write waits at an open gate")
		}
	}
	for i := range writers {
		text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i+1)))
		if n := strings.Count(string(text), "\n"); err != nil || n != writes {
			t.Errorf("writer %d: %d of %d lines came through: %v", i+1, n, writes, err)
		}
	}
}

// What a program writes to the socket waits, and what it writes to another one and to files does not.
func TestGateSocket(t *testing.T) {
	dir := t.TempDir()
	said := map[string]chan string{}
	for _, name := range []string{"held", "free"} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		said[name] = make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			text, _ := io.ReadAll(conn) // a failure is another text than the wanted one
			said[name] <- string(text)
		}()
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSpeak$")
	cmd.Env = append(os.Environ(), "GATE_SPEAK="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	g, exited, err := Start(cmd, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
	g.ShutSocket(filepath.Join(dir, "held"))
	_, _ = io.WriteString(in, "\n")
	if text := <-said["free"]; text != "word" {
		t.Errorf("the other socket has %q", text)
	}
	for deadline := time.Now().Add(time.Minute); g.Sent() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no write waits")
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "word" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	select {
	case text := <-said["held"]:
		t.Errorf("%q came through a shut gate", text)
	default:
	}
	g.Open()
	if text := <-said["held"]; text != "word" {
		t.Errorf("the socket has %q", text)
	}
	if n := g.Sent(); n != 0 {
		t.Errorf("%d writes wait at an open gate", n)
	}
}

// TestSpeak is the program of TestGateSocket: at a line it writes to a file and both sockets.
func TestSpeak(t *testing.T) {
	dir := os.Getenv("GATE_SPEAK")
	if dir == "" {
		t.Log("a program for TestGateSocket, which starts it")
		return
	}
	conns := map[string]net.Conn{}
	for _, name := range []string{"free", "held"} {
		conn, err := net.Dial("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		conns[name] = conn
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("word"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"free", "held"} {
		_, err := io.WriteString(conns[name], "word")
		if err := errors.Join(err, conns[name].Close()); err != nil {
			t.Fatal(err)
		}
	}
}
