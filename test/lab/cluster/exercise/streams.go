// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package exercise

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kubectl runs kubectl in the namespace and fails the test on an error.
func (n *node) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := n.c.Kubectl(ctx, append([]string{"-n", n.ns}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// transports are the two ways of kubectl to open a stream, by the variables that switch WebSocket off.
var transports = map[string][]string{
	"websocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"spdy":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

func (n *node) exec(t *testing.T) {
	for name, env := range transports {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			cmd, err := n.c.KubectlCommand(ctx, "-n", n.ns, "exec", "-i", guaranteed, "--",
				"/bin/sh", "-c", "cat; echo complaint >&2; exit 7")
			if err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(cmd.Env, env...)
			text := strings.Repeat("0123456789abcdef", 16<<10) // 256 KiB both ways
			var out, errs strings.Builder
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &errs
			err = cmd.Run()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("exit status: %v, want 7", err)
			}
			if out.String() != text {
				t.Errorf("%d bytes came back of %d", out.Len(), len(text))
			}
			if !strings.Contains(errs.String(), "complaint") {
				t.Errorf("standard error is %q", errs.String())
			}
		})
	}
}

func (n *node) logs(t *testing.T) {
	for _, name := range []string{guaranteed, burstable, bestEffort} {
		if out := n.kubectl(t, "logs", name); out != "hello from "+name+"\n" {
			t.Errorf("log of %s is %q", name, out)
		}
	}
	n.create(t, "talker", `command: ["/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.1; done"]`)
	n.ready(t, "talker")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd, err := n.c.KubectlCommand(ctx, "-n", n.ns, "logs", "-f", "talker")
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for s := bufio.NewScanner(out); lines < 20 && s.Scan(); lines++ {
		if want := fmt.Sprintf("line %d", lines+1); s.Text() != want {
			t.Errorf("followed log: %q, want %q", s.Text(), want)
		}
	}
	cancel()
	_ = cmd.Wait() // we killed it
	if lines != 20 {
		t.Errorf("followed %d lines, want 20", lines)
	}
	if err := n.c.Admin().Delete(t.Context(), n.path("pods", "talker"), 0); err != nil {
		t.Error(err)
	}
}

var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)

func (n *node) portForward(t *testing.T) {
	for name, env := range transports {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			cmd, err := n.c.KubectlCommand(ctx, "-n", n.ns, "port-forward", "--address=127.0.0.1", "pod/"+bestEffort, ":8080")
			if err != nil {
				t.Fatal(err)
			}
			cmd.Env, cmd.Stderr = append(cmd.Env, env...), os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				cancel()
				_ = cmd.Wait() // we killed it
			}()
			line, err := bufio.NewReader(out).ReadString('\n')
			m := forwarding.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("kubectl said %q, %v", line, err)
			}
			for range 3 {
				if body, err := fetch(ctx, "http://127.0.0.1:"+m[1]+"/"); err != nil || body != "served by "+bestEffort+"\n" {
					t.Errorf("through the forwarded port: %q, %v", body, err)
				}
			}
		})
	}
}

func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}

// eventedPLEG: the kubelet counts connections to the runtime's event stream, and an end of a container
// is seen well before the next relist, which is 300 s away with the gate on; a starved machine must do without one.
func (n *node) eventedPLEG(t *testing.T) {
	count := func(metric string) string {
		t.Helper()
		text, err := n.k.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^kubelet_` + metric + ` (\d+)`).FindStringSubmatch(text)
		if m == nil {
			return ""
		}
		return m[1]
	}
	if made := count("evented_pleg_connection_success_count"); made == "" || made == "0" {
		t.Errorf("connections to the runtime's events: %q", made)
	}
	const relists = "pleg_relist_duration_seconds_count"
	before, begun := count(relists), time.Now()
	n.create(t, "short", `command: ["/bin/sleep", "1"]`)
	n.wait(t, "short", "second run of short", func(p object) bool { return p.Int(status("restartCount")...) >= 1 })
	took := time.Since(begun)
	t.Logf("the end of a container was seen and it ran again after %s", took.Round(time.Millisecond))
	// However long the two runs took: where nothing was listed meanwhile, the event was seen.
	if after := count(relists); took > 15*time.Second && (before == "" || after != before) {
		t.Errorf("the end was seen after %s, relists before %q, after %q", took, before, after)
	}
	if err := n.c.Admin().Delete(t.Context(), n.path("pods", "short"), 0); err != nil {
		t.Error(err)
	}
}

// restart: pods live through a kubelet's end and crash, and the node goes on working.
func (n *node) restart(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		before := map[string]string{}
		for _, name := range []string{guaranteed, burstable, bestEffort} {
			before[name] = containerID(n.ready(t, name))
		}
		if err := n.k.End(sig); err != nil {
			t.Fatal(err)
		}
		if n.options.WhileDown != nil {
			n.options.WhileDown(t)
		}
		begun := time.Now()
		if err := n.k.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("node Ready again after %s", time.Since(begun).Round(time.Millisecond))
		n.create(t, "later", web)
		n.ready(t, "later")
		for name, id := range before {
			p := n.ready(t, name)
			if containerID(p) != id || p.Int(status("restartCount")...) != 0 {
				t.Errorf("after signal %v %s runs as %s with %d restarts, was %s", sig, name, containerID(p), p.Int(status("restartCount")...), id)
			}
			if out := n.kubectl(t, "exec", name, "--", "echo", "here"); out != "here\n" {
				t.Errorf("exec after the restart: %q", out)
			}
		}
		if err := n.c.Admin().Delete(t.Context(), n.path("pods", "later"), 0); err != nil {
			t.Error(err)
		}
		n.wait(t, "later", "end of later", func(p object) bool { return p == nil })
	}
}
