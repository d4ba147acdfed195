// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package docker_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestDockerHostPassThrough runs the same commands directly and through the proxy and compares what the client shows.
func TestDockerHostPassThrough(t *testing.T) {
	r := newRig(t)
	direct, through := script(t, r, r.Socket, "direct"), script(t, r, r.socket, "proxy")
	if len(direct) < 20 {
		t.Fatalf("only %d commands", len(direct))
	}
	for name, want := range direct {
		if got := through[name]; got != want {
			t.Errorf("%s:\nthrough the proxy %q\ndirectly          %q", name, got, want)
		}
	}
	if calls, _, _ := r.h.snapshot(); len(calls) > 0 {
		t.Errorf("containers of nobody reached the handler: %v", calls)
	}
	if strings.Contains(r.log.String(), secret) {
		t.Error("a secret is in the log")
	}
}

// script runs commands on one socket; the names of containers carry tag, outputs do not.
func script(t *testing.T, r *rig, socket, tag string) map[string]string {
	t.Helper()
	out := map[string]string{}
	c := "c-" + tag
	do := func(name string, stdin io.Reader, args ...string) {
		t.Helper()
		out[name] = strings.ReplaceAll(r.run(t, socket, stdin, args...), tag, "TAG")
	}
	do("run", nil, "run", "--rm", "--network", "none", "--env", "PASSWORD="+secret, parts.ImageRef, "sh", "-c", "echo out; echo err >&2; cat /etc/group")
	do("run -i", strings.NewReader("one\ntwo\n"), "run", "--rm", "-i", "--network", "none", parts.ImageRef, "cat")
	do("run -i large", strings.NewReader(strings.Repeat("x", 8<<20)), "run", "--rm", "-i", "--network", "none", parts.ImageRef, "md5sum")
	do("run -d", nil, "run", "--detach", "--cidfile", filepath.Join(r.Dir, tag), "--name", c, "--network", "none", "--cpu-shares", "99",
		"--env", "PASSWORD="+secret, parts.ImageRef, "sh", "-c", "trap 'exit 3' TERM; i=0; while true; do i=$((i+1)); echo line $i; sleep 0.2; done")
	delete(out, "run -d") // an id
	do("exec", nil, "exec", c, "sh", "-c", "echo hello; id -u")
	do("exec -i", strings.NewReader("to the end\n"), "exec", "-i", c, "sh", "-c", "cat; echo after the end of input")
	do("exec -i large", strings.NewReader(strings.Repeat("y", 8<<20)), "exec", "-i", c, "md5sum")
	do("exec -d", nil, "exec", "-d", c, "true")
	out["exec status"] = exitStatus(t, r, socket, "exec", c, "sh", "-c", "exit 7")
	do("inspect", nil, "inspect", "--format", "{{json .HostConfig.Resources}} {{json .Config.Env}} {{.State.Status}}", c)
	out["attach"] = firstLine(t, r, socket, "attach", "--no-stdin", "--sig-proxy=false", c)
	out["logs -f"] = firstLine(t, r, socket, "logs", "--follow", "--tail", "1", c)
	out["events"] = eventOf(t, r, socket, c)
	file := filepath.Join(r.Dir, "file-"+tag)
	if err := os.WriteFile(file, bytes.Repeat([]byte("copied"), 1<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	do("cp in", nil, "cp", file, c+":/tmp/in")
	do("cp in, seen", nil, "exec", c, "md5sum", "/tmp/in")
	do("cp out", nil, "cp", c+":/tmp/in", file+".back")
	if back, err := os.ReadFile(file + ".back"); err != nil || len(back) != 6<<19 {
		t.Errorf("copied back %d bytes, %v", len(back), err)
	}
	do("update", nil, "update", "--cpu-shares", "55", c)
	do("update, seen", nil, "inspect", "--format", "{{.HostConfig.CpuShares}}", c)
	do("restart", nil, "restart", "--time", "5", c)
	do("diff", nil, "diff", c)
	do("stats", nil, "stats", "--no-stream", "--format", "{{.Name}}", c)
	do("stop", nil, "stop", "--time", "20", c)
	do("wait", nil, "wait", c)
	do("start", nil, "start", c)
	do("kill", nil, "kill", c)
	do("rename", nil, "rename", c, c+"-2")
	do("rm", nil, "rm", c+"-2")
	do("rm again", nil, "rm", "--force", c+"-2")
	buildAndLoad(t, r, socket, tag, do)
	out["not there"] = exitStatus(t, r, socket, "start", "nobody")
	out["bad name"] = exitStatus(t, r, socket, "create", "--name", "/x/y", "--network", "none", parts.ImageRef)
	out["bad value"] = exitStatus(t, r, socket, "create", "--memory", "1m", "--network", "none", parts.ImageRef)
	return out
}

func buildAndLoad(t *testing.T, r *rig, socket, tag string, do func(name string, stdin io.Reader, args ...string)) {
	t.Helper()
	dir := filepath.Join(r.Dir, "build-"+tag)
	files := map[string][]byte{
		"Dockerfile": []byte("FROM " + parts.ImageRef + "\nCOPY big /big\nRUN md5sum /big > /sum\nCMD [\"cat\", \"/sum\"]\n"),
		"big":        bytes.Repeat([]byte("0123456789abcdef"), 1<<20), // 16 MiB: above what is ever buffered
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	image := "koord-rt.test/built-" + tag + ":1"
	if log := r.run(t, socket, nil, "build", "--network", "none", "--tag", image, dir); !strings.Contains(log, "Successfully tagged") || !strings.Contains(log, "Step 4/4") {
		t.Errorf("build shows %s", log)
	}
	do("run built", nil, "run", "--rm", "--network", "none", image)
	saved := filepath.Join(r.Dir, tag+".tar")
	do("save", nil, "save", "--output", saved, image)
	r.run(t, socket, nil, "rmi", "--force", "--no-prune", image) // shows digests, which carry the time of the build
	do("load", nil, "load", "--quiet", "--input", saved)
	do("run loaded", nil, "run", "--rm", "--network", "none", image)
}

// exitStatus is the client's exit code and message.
func exitStatus(t *testing.T, r *rig, socket string, args ...string) string {
	t.Helper()
	cmd := r.Command(t.Context(), socket, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("docker %v: %v", args, err)
	}
	return fmt.Sprintf("%d %s", exit.ExitCode(), out)
}

// firstLine starts a client that follows a stream, waits for a line and interrupts it.
func firstLine(t *testing.T, r *rig, socket string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	line, end := follow(t, r, ctx, socket, args...)
	defer end()
	text, err := line()
	if err != nil {
		t.Fatalf("docker %v: %v", args, err)
	}
	word, _, _ := strings.Cut(text, " ")
	return word
}

func follow(t *testing.T, r *rig, ctx context.Context, socket string, args ...string) (line func() (string, error), end func()) {
	t.Helper()
	cmd := r.Command(ctx, socket, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	return func() (string, error) { return lines.ReadString('\n') }, func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
}

// eventOf sees a container's event while the stream is open.
func eventOf(t *testing.T, r *rig, socket, c string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// --since makes sure that an event before the subscription is told too, however long the client takes to begin.
	now := time.Now()
	since := fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())
	line, end := follow(t, r, ctx, socket, "events", "--since", since, "--filter", "container="+c, "--filter", "event=pause", "--format", "{{.Action}}")
	defer end()
	r.run(t, socket, nil, "pause", c)
	r.run(t, socket, nil, "unpause", c)
	text, err := line()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
