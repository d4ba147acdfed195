// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/model/workload"
)

// exchange is a decoded request on its way to the daemon and back.
type exchange struct {
	call    *Call
	changed bool
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	return ex
}

// errForeign ends a decision about a container that is not Kubernetes'.
var errForeign = errors.New("not a container of Kubernetes")

// decode asks the Handler about one request and forwards it.
func (p *Proxy) decode(w http.ResponseWriter, r *http.Request, route engine.Route) {
	if !p.begin() {
		message(w, http.StatusServiceUnavailable, "koord-runtime-proxy: it is ending")
		return
	}
	defer p.calls.Done()
	note := Note{Verb: route.Verb, ID: route.ID}
	var raw []byte
	if route.Verb == engine.VerbCreate || route.Verb == engine.VerbUpdate {
		body, rest, err := readBody(r.Body, p.options.MaxBody)
		if err != nil {
			message(w, http.StatusBadRequest, "koord-runtime-proxy: the request's body ended early")
			return
		}
		if rest != nil {
			p.note(note, ResultTooLarge, fmt.Errorf("body above %d bytes", p.options.MaxBody))
			r.Body = struct {
				io.Reader
				io.Closer
			}{rest, r.Body}
			p.pass(w, r)
			return
		}
		raw = body
	}
	body, ex, err := p.decide(r.Context(), route, raw, &note)
	var refusal *Refusal
	if errors.As(err, &refusal) {
		p.note(note, ResultRefused, err)
		status := refusal.Status
		if status == 0 {
			status = http.StatusInternalServerError
		}
		message(w, status, err.Error())
		return
	}
	if raw != nil {
		if body == nil {
			body = raw
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	}
	if ex != nil {
		ex.changed = !bytes.Equal(body, raw)
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, ex))
	}
	switch {
	case err == nil && ex.changed:
		p.note(note, ResultChanged, nil)
	case err == nil:
		p.note(note, ResultUnchanged, nil)
	case errors.Is(err, engine.ErrBody), errors.Is(err, engine.ErrAmbiguous):
		p.note(note, ResultMalformed, err)
	case !errors.Is(err, errForeign) && !errors.Is(err, ErrNoContainer):
		p.note(note, ResultError, err)
	}
	p.reverse.ServeHTTP(w, r)
}

// readBody reads up to limit bytes. Of a longer body, rest gives all bytes, those already read included.
func readBody(r io.Reader, limit int64) (body []byte, rest io.Reader, err error) {
	body, err = io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil || int64(len(body)) <= limit {
		return body, nil, err
	}
	return nil, io.MultiReader(bytes.NewReader(body), r), nil
}

// decide finds out what the request is about and calls Before. ex is nil when Before was not reached.
func (p *Proxy) decide(ctx context.Context, route engine.Route, raw []byte, note *Note) (body []byte, ex *exchange, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.DecisionTimeout)
	defer cancel()
	call := &Call{Verb: route.Verb}
	if route.Verb == engine.VerbCreate {
		err = p.readCreate(ctx, call, raw)
	} else {
		err = p.readExisting(ctx, call, route.ID, raw)
	}
	if err != nil {
		return nil, nil, err
	}
	note.Pod = call.Pod.FullName()
	body, err = p.before(ctx, call)
	return body, &exchange{call: call}, err
}

func (p *Proxy) readCreate(ctx context.Context, call *Call, raw []byte) (err error) {
	if call.Create, err = engine.ParseCreate(raw); err != nil {
		return err
	}
	switch call.Create.Type() {
	case engine.TypeSandbox:
		call.Pod = call.Create.Pod()
	case engine.TypeContainer:
		call.Pod, call.Container = p.pod(ctx, call.Create.SandboxID(), call.Create.Orphan), call.Create.Container()
	default:
		return errForeign
	}
	return nil
}

func (p *Proxy) readExisting(ctx context.Context, call *Call, id string, raw []byte) (err error) {
	if p.options.Registry != nil && call.Verb != engine.VerbUpdate {
		var known bool
		if call.Pod, call.Container, known = p.options.Registry.Known(id); known {
			call.ID = id
			return nil
		}
		if call.Pod, known = p.options.Registry.KnownPod(id); known {
			call.ID = id
			return nil
		}
		call.Container = nil
	}
	if call.Current, err = p.backend.Inspect(ctx, id); err != nil {
		return err
	}
	switch call.Current.Type() {
	case engine.TypeSandbox:
		call.Pod = call.Current.Pod()
	case engine.TypeContainer:
		call.Pod, call.Container = p.pod(ctx, call.Current.SandboxID(), call.Current.Orphan), call.Current.Container()
	default:
		return errForeign
	}
	call.ID = call.Current.ID
	if call.Verb == engine.VerbUpdate {
		call.Update, err = engine.ParseUpdate(raw)
	}
	return err
}

// pod is a container's sandbox, known or read; orphan stands in where that fails.
func (p *Proxy) pod(ctx context.Context, sandbox string, orphan func(reason string) *workload.Pod) *workload.Pod {
	if sandbox == "" {
		return orphan("the container names none")
	}
	if p.options.Registry != nil {
		if pod, known := p.options.Registry.KnownPod(sandbox); known {
			return pod
		}
	}
	in, err := p.backend.Inspect(ctx, sandbox)
	if err != nil {
		return orphan(err.Error())
	}
	return in.Pod()
}

func (p *Proxy) before(ctx context.Context, call *Call) (body []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			body, err = nil, fmt.Errorf("decide %s: panic: %v", call.Verb, v)
		}
	}()
	body, err = p.options.Handler.Before(ctx, call)
	if err != nil || call.Create == nil && call.Update == nil {
		body = nil
	}
	return body, err
}

// answered is called with the daemon's reply before the client gets it.
func (p *Proxy) answered(resp *http.Response) error {
	ex := exchangeOf(resp.Request.Context())
	if ex == nil {
		return nil
	}
	o := Outcome{Status: resp.StatusCode, At: time.Now(), Changed: ex.changed}
	if ex.call.Verb == engine.VerbCreate && o.OK() {
		data, rest, err := readBody(resp.Body, maxReply)
		if err != nil {
			return err
		}
		if rest == nil {
			rest = bytes.NewReader(data)
		}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{rest, resp.Body}
		call := *ex.call
		if call.ID, err = engine.ParseCreated(data); err != nil {
			p.note(Note{Verb: call.Verb, Pod: call.Pod.FullName()}, ResultError, fmt.Errorf("read the reply of create: %w", err))
		} else if created := call.Create.Created(call.ID); call.Sandbox() {
			call.Pod = created.Pod()
		} else {
			call.Container = created.Container()
		}
		ex.call = &call
	}
	p.after(ex, o)
	return nil
}

// after reads a container that may have changed again and calls After, also when the client has gone.
func (p *Proxy) after(ex *exchange, o Outcome) {
	ctx, cancel := context.WithTimeout(p.base, p.options.DecisionTimeout)
	defer cancel()
	call := *ex.call
	note := Note{Verb: call.Verb, ID: call.ID, Pod: call.Pod.FullName()}
	defer func() {
		if v := recover(); v != nil {
			p.note(note, ResultError, fmt.Errorf("after %s: panic: %v", call.Verb, v))
		}
	}()
	switch {
	case o.Err != nil:
		p.note(note, ResultAway, o.Err)
	case o.OK() && call.Verb != engine.VerbCreate && call.Verb != engine.VerbRemove:
		in, err := p.backend.Inspect(ctx, call.ID)
		switch {
		case errors.Is(err, ErrNoContainer): // run with --rm
		case err != nil:
			p.note(note, ResultError, err)
		case call.Sandbox():
			call.Current, call.Pod = in, in.Pod()
		default:
			call.Current, call.Container = in, in.Container()
		}
	}
	p.options.Handler.After(ctx, &call, o)
}

func (p *Proxy) note(n Note, result Result, err error) {
	n.Result, n.Err = result, err
	if err != nil {
		p.options.Log.Warn("docker request", "verb", n.Verb.String(), "result", string(result), "pod", n.Pod, "container", n.ID, "error", err)
	}
	if p.options.Observe != nil {
		p.options.Observe(n)
	}
}
