// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubeletopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
)

// Times of a Reader. A kubelet reads its configuration once, at its start; one that refuses is asked again when somebody may
// have given the right.
const (
	timeout = 5 * time.Second
	every   = time.Minute
	retry   = 10 * time.Second
	refused = 10 * time.Minute
)

// errRefused says that the kubelet answers and does not tell.
var errRefused = errors.New("RBAC does not allow get on nodes/configz (nodes/proxy before Kubernetes 1.33)")

// State is what is known.
type State struct {
	Options Options
	// Known: Options are the kubelet's, or its file's. Since is when they were read.
	Known bool
	Since time.Time
	// Err says why they are not the kubelet's own word, or not its latest; nil while they are.
	Err error
	// asked is the kubelet's own word, which holds while it does not answer.
	asked bool
}

// Reader keeps the options of one kubelet. Run is the only writer, State is for everybody.
type Reader struct {
	url, file string
	http      *trust.Client
	state     atomic.Pointer[State]
}

// NewReader asks at endpoint, "https://127.0.0.1:10250", as the client does; without a client only file is read. Nothing is
// read yet.
func NewReader(endpoint string, client *trust.Client, file string) *Reader {
	return &Reader{url: strings.TrimSuffix(endpoint, "/") + "/configz", file: file, http: client}
}

// State is the last word, nil before the first look.
func (r *Reader) State() *State { return r.state.Load() }

// Run looks until ctx ends, and returns nil then.
func (r *Reader) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		s := r.look(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		r.state.Store(s)
		switch {
		case s.Err == nil:
			timer.Reset(every)
		case errors.Is(s.Err, errRefused) || r.http == nil:
			timer.Reset(refused)
		default:
			timer.Reset(retry)
		}
	}
}

// look asks once. What the kubelet has said holds while it does not answer; its file stands in where it refuses, and until
// it answers.
func (r *Reader) look(ctx context.Context, now time.Time) *State {
	o, err := r.ask(ctx)
	if err == nil {
		return &State{Options: o, Known: true, Since: now, asked: true}
	}
	if old := r.State(); old != nil && old.asked && !errors.Is(err, errRefused) {
		return &State{Options: old.Options, Known: true, Since: old.Since, Err: fmt.Errorf("%w; its last answer holds", err), asked: true}
	}
	if o, ferr := r.read(); ferr == nil {
		return &State{Options: o, Known: true, Since: now, Err: fmt.Errorf("%w; read from %s, which its flags may overrule", err, r.file)}
	} else if r.file != "" {
		err = fmt.Errorf("%w; %w", err, ferr)
	}
	return &State{Err: err}
}

// ask is GET /configz.
func (r *Reader) ask(ctx context.Context) (Options, error) {
	if r.http == nil {
		return Options{}, errors.New("no way to the kubelet is configured")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return Options{}, fmt.Errorf("ask the kubelet for its configuration: %w", err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return Options{}, fmt.Errorf("ask the kubelet for its configuration: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return Options{}, errors.New("ask the kubelet for its configuration: 401: the token or client certificate is not accepted")
	case http.StatusForbidden:
		return Options{}, fmt.Errorf("ask the kubelet for its configuration: 403: %w", errRefused)
	default:
		return Options{}, fmt.Errorf("ask the kubelet for its configuration: %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	if err != nil {
		return Options{}, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	return Parse(b)
}

func (r *Reader) read() (Options, error) {
	f, err := os.Open(r.file)
	if err != nil {
		return Options{}, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return Options{}, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	return Parse(b)
}
