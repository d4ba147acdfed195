// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper makes the mapper of kinds of the serving manager. Making that manager asks the API server nothing else, and so waits here for
// one that can be asked.
func (p *process) mapper(ctx context.Context) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(c *rest.Config, h *http.Client) (meta.RESTMapper, error) {
		m, err := apiutil.NewDynamicRESTMapper(c, h)
		if err != nil {
			return nil, err
		}
		return m, p.reached(ctx, func() error {
			_, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1")
			return err
		})
	}
}

// reached asks until there is an answer, or ctx has ended. One that is not an API server's ends it too.
func (p *process) reached(ctx context.Context, ask func() error) error {
	err := ask()
	if err == nil || foreign(err) {
		return err
	}
	stop, no := waiting(p.o.Health)
	if no != nil {
		return no
	}
	defer stop()
	for {
		p.log.Error("the API server cannot be asked; tried again", "err", err, "after", p.again)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.again):
		}
		if err = ask(); err == nil || foreign(err) {
			return err
		}
	}
}

// foreign reports whether an error says that what answers is no API server. Anything else may pass: one that is away, one that ends in
// the middle of an answer, one that has just started and forbids everything to everybody until it has read its roles.
func foreign(err error) bool {
	var text *json.SyntaxError
	return errors.As(err, &text)
}

// waiting answers probes until there is a manager that does: alive, or the kubelet would start the process again, later each time; and
// not ready.
func waiting(address string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the API server cannot be asked", http.StatusServiceUnavailable)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // until it is closed
	}()
	return func() {
		_ = s.Close() // the manager listens at the same address
		<-done
	}, nil
}
