// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package gate

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
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
