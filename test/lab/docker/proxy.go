// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ProxyOptions of a Proxy.
type ProxyOptions struct {
	Program  string        // required: path of koord-runtime-proxy
	Strategy string        // the field strategy of its configuration, in YAML
	Patience time.Duration // how long it may take to begin and to end; default a minute, which a starved machine may need
}

// Proxy is koord-runtime-proxy in mode Docker before a Daemon. It may be down for a while.
type Proxy struct {
	Socket string // the Engine API for clients

	d       *Daemon
	o       ProxyOptions
	run     string
	process *process // nil while it is down
}

// ProxyStatus is the part of the proxy's status file that tests look at.
type ProxyStatus struct {
	PID            int               `json:"pid"`
	ConnectedSince time.Time         `json:"connectedSince"`
	Counters       map[string]uint64 `json:"counters"`
}

// StartProxy writes a configuration and begins a Proxy's first life. The Daemon's folder has all its files, its log too.
func (d *Daemon) StartProxy(ctx context.Context, o ProxyOptions) (*Proxy, error) {
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	at := func(name string) string { return filepath.Join(d.Dir, name) }
	p := &Proxy{Socket: at("koord.sock"), d: d, o: o, run: at("run")}
	config := fmt.Sprintf("apiVersion: koord-rt.dev/v1alpha1\nkind: ProxyConfig\nrunDir: %s\nstateDir: %s\nstrategyFile: %s\n"+
		"host: {kubepodsRoot: /%s}\nmetrics: {address: \"unix:%s\"}\nreconnect: {min: 50ms, max: 500ms}\nhooks: {dir: %s}\ndeadline: 1900ms\nstrategy:\n  %s\n",
		p.run, at("state"), at("strategy.yaml"), d.Cgroup, at("metrics.sock"), at("hooks"), o.Strategy)
	if err := os.WriteFile(at("proxy.yaml"), []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of the proxy: %w", err)
	}
	return p, p.Begin(ctx)
}

// Begin starts it with upstream's flags and waits until it knows the daemon's containers and serves. On error it is down.
func (p *Proxy) Begin(ctx context.Context) error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(p.o.Program, "--config", filepath.Join(p.d.Dir, "proxy.yaml"), "--backend-runtime-mode=Docker",
		"--koord-runtimeproxy-endpoint="+p.Socket, "--remote-runtime-service-endpoint=unix://"+p.d.Socket)
	cmd.Stdout, cmd.Stderr = log, log
	if p.process, err = start(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	for {
		if err = p.serves(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-p.process.done:
			err = fmt.Errorf("it has ended: %s", cmd.ProcessState)
		case <-time.After(20 * time.Millisecond):
			continue
		}
		return errors.Join(fmt.Errorf("start the proxy: %w; end of its log:\n%s", err, tail([]byte(p.Log()))), p.End(syscall.SIGKILL))
	}
}

func (p *Proxy) serves() error {
	if s := p.Status(); s.PID != p.process.cmd.Process.Pid || s.ConnectedSince.IsZero() {
		return errors.New("not connected")
	}
	c, err := net.Dial("unix", p.Socket)
	if err != nil {
		return err
	}
	return c.Close()
}

// Signal sends one to the process.
func (p *Proxy) Signal(sig syscall.Signal) error {
	if p.process == nil {
		return errors.New("signal the proxy: it is down")
	}
	return p.process.cmd.Process.Signal(sig)
}

// End ends it by a signal and waits; one that does not end is killed, which is an error. It is nothing while it is down.
func (p *Proxy) End(sig syscall.Signal) error {
	ending := p.process
	p.process = nil
	if ending == nil {
		return nil
	}
	began := time.Now()
	err := ending.end(sig, p.o.Patience)
	if err == nil && time.Since(began) >= p.o.Patience {
		err = fmt.Errorf("the proxy did not end within %s of %s", p.o.Patience, sig)
	}
	return err
}

// Status is what it has told last, of whichever life; the zero value before that.
func (p *Proxy) Status() (s ProxyStatus) {
	data, err := os.ReadFile(filepath.Join(p.run, "status-cri.json"))
	if err != nil || json.Unmarshal(data, &s) != nil {
		return ProxyStatus{}
	}
	return s
}

// Log is what it has written so far, in all its lives.
func (p *Proxy) Log() string {
	text, _ := os.ReadFile(p.logFile()) // none before the first life
	return string(text)
}

func (p *Proxy) logFile() string { return filepath.Join(p.d.Dir, "proxy.log") }
