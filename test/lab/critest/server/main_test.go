// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab"
)

// asProgram makes this test binary the program itself; its name is the first argument then.
const asProgram = "KOORDRT_TEST_SERVER_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is the server under a name, as a container starts it.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Args[0] = "/usr/sbin/" + name
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// A web server under any other name: it prints its line and writes its process id once the port is open, and answers
// every path.
func TestServe(t *testing.T) {
	t.Parallel()
	address, err := lab.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	pidfile := filepath.Join(t.TempDir(), "nginx.pid")
	cmd := program(t, "nginx", "-listen", address, "-pidfile", pidfile, "-title", "master process", "-say", "started")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("said %q, %v", line, err)
	}
	for _, path := range []string{"/", "/any/where?x=y"} {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || string(body) != "koord-rt test page\n" {
			t.Errorf("%s: %s, %q, %v", path, resp.Status, body, err)
		}
	}
	if text, err := os.ReadFile(pidfile); err != nil || string(text) != fmt.Sprintln(cmd.Process.Pid) {
		t.Errorf("process file %q, %v; want %d", text, err, cmd.Process.Pid)
	}
	second := program(t, "httpd", "-listen", address, "-say", "not said")
	if text, err := second.CombinedOutput(); err == nil || !strings.Contains(string(text), "server: listen: ") || strings.Contains(string(text), "not said") {
		t.Errorf("a second server on one port: %v\n%s", err, text)
	}
}

// What the small programs print, and their exit codes.
func TestPrograms(t *testing.T) {
	t.Parallel()
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.TrimSpace(string(comm))
	for what, c := range map[string]struct {
		name string
		args []string
		code int
		// out is a whole line of the output, err a part of the complaint; empty for no output.
		out, err string
	}{
		"user":            {"nonewprivs", nil, 0, fmt.Sprintf("Effective uid: %d", os.Geteuid()), ""},
		"segments":        {"ipcs", []string{"-m"}, 0, "shmid", ""},
		"processes":       {"pgrep", []string{own}, 0, strconv.Itoa(os.Getpid()), ""},
		"no such process": {"pgrep", []string{"no-process-has-this-name"}, 1, "", ""},
		"which process":   {"pgrep", nil, 1, "", "want one name"},
		"unknown flag":    {"nginx", []string{"-lisn", ":80"}, 1, "", "-lisn"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, c.name, c.args...)
			var out, complaint strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &complaint
			err := cmd.Run()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.code {
				t.Fatalf("%v, want exit code %d", err, c.code)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if !slices.Contains(lines, c.out) || (out.Len() == 0) != (c.out == "") {
				t.Errorf("printed %q, want the line %q", out.String(), c.out)
			}
			if !strings.Contains(complaint.String(), c.err) || (complaint.Len() == 0) != (c.err == "") {
				t.Errorf("complained %q, want %q", complaint.String(), c.err)
			}
			if slices.Contains(lines, strconv.Itoa(cmd.ProcessState.Pid())) {
				t.Error("it has listed itself")
			}
		})
	}
}

// pause ignores the end of its children, which leaves no zombies (wait(2)), and ends when it is told to.
func TestPause(t *testing.T) {
	t.Parallel()
	cmd := program(t, "pause")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for !ignores(t, cmd.Process.Pid, syscall.SIGCHLD) {
		if t.Context().Err() != nil {
			t.Fatal("the end of children is not ignored")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it did not end in order: %v", err)
	}
}

// ignores reads SigIgn of /proc/PID/status, a mask whose lowest bit is signal 1 (proc_pid_status(5)).
func ignores(t *testing.T, pid int, sig syscall.Signal) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "\nSigIgn:\t")
	line, _, _ = strings.Cut(line, "\n")
	if line == "" {
		t.Fatalf("no SigIgn: it has ended\n%s", text)
	}
	mask, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask&(1<<(sig-1)) != 0
}

// The ids of the segments are the second column of /proc/sysvipc/shm, below a line of titles (proc_sysvipc(5)).
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	const head = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n"
	for name, c := range map[string]struct{ text, want string }{
		"none": {head, "shmid\n"},
		"two": {head + "1627453987          3  1600                  4096  4711  4711      2     0     0     0     0 1700000000          0 1700000000                  4096                     0\n" +
			"         0      32772   600               1048576  4712     0      0  1000  1000  1000  1000          0          0 1700000000                     0                     0\n",
			"shmid\n3\n32772\n"},
	} {
		path := filepath.Join(t.TempDir(), "shm")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := sharedMemory(&out, path); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", name, out.String(), err, c.want)
		}
	}
	if err := sharedMemory(io.Discard, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is missing is no empty list")
	}
}
