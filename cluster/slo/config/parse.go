// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// maxProblems is how many wrong values of one key are told, as many as the decoder tells of wrong types: each is looked up in the document.
const maxProblems = 20

// Keys are those that are read, in order.
func Keys() []string {
	return []string{
		KeyColocation, KeyThreshold, KeyQOS, KeyBurst, KeySystem, KeyHostApplication, KeyNormalization, KeyAmplification,
	}
}

// Parse reads the ConfigMap's data. Keys that are absent mean their default; a key with a problem keeps what last says of it, as a
// whole; where last is nil it is [Config.Unknown]. Keys that nobody reads are problems too ([ErrUnknownKey]) and change nothing.
func Parse(data map[string]string, last *Config) (*Config, []Problem) {
	var out Config
	if last != nil {
		out = *last
	}
	r := reader{data: data, before: last, unknown: map[string]bool{}}
	read(&r, KeyColocation, &out.colocation, decodeColocation)
	read(&r, KeyThreshold, &out.threshold, decodeThreshold)
	read(&r, KeyQOS, &out.qos, decodeQOS)
	read(&r, KeyBurst, &out.burst, decodeBurst)
	read(&r, KeySystem, &out.system, decodeSystem)
	read(&r, KeyHostApplication, &out.hosts, decodeHosts)
	read(&r, KeyNormalization, &out.normalization, decodeNormalization)
	read(&r, KeyAmplification, &out.amplification, decodeAmplification)
	out.extensions = extensionsOf(&r)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(Keys(), key) && (!strings.HasPrefix(key, PrefixExtension) || key == PrefixExtension) {
			r.problems = append(r.problems, Problem{Key: key,
				Err: fmt.Errorf("%w: nobody reads it; known are %s, and %sNAME for others' programs", ErrUnknownKey, strings.Join(Keys(), ", "), PrefixExtension)})
		}
	}
	out.unknown = r.unknown
	return &out, r.problems
}

// reader gathers problems, and what no one knows.
type reader struct {
	data     map[string]string
	before   *Config
	problems []Problem
	unknown  map[string]bool
}

// refuse records why a key is not read.
func (r *reader) refuse(key string, problems ...Problem) {
	r.problems = append(r.problems, problems...)
	if r.before == nil || r.before.Unknown(key) {
		r.unknown[key] = true
	}
}

// read decodes one key into to, which keeps its value where that fails.
func read[T any](r *reader, key string, to *layers[T], decode func(strategy.Document) (layers[T], []strategy.FieldError, error)) {
	text, given := r.data[key]
	if !given {
		*to = layers[T]{}
		return
	}
	doc, err := document(text)
	if err != nil {
		r.refuse(key, Problem{Key: key, Err: err})
		return
	}
	got, wrong, err := decode(doc)
	if problems := problemsOf(key, doc, wrong, err); len(problems) > 0 {
		r.refuse(key, problems...)
		return
	}
	*to = got
}

// document is the one document of a text, JSON or YAML.
func document(text string) (strategy.Document, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		// JSON may be indented by tabs, YAML not everywhere; within JSON's strings there are none.
		text = strings.ReplaceAll(text, "\t", " ")
	}
	docs, err := strategy.Documents([]byte(text))
	switch {
	case errors.Is(err, strategy.ErrEmpty):
		return strategy.Document{}, fmt.Errorf("%w: remove the key if the default is meant", strategy.ErrEmpty)
	case err != nil:
		return strategy.Document{}, err
	case len(docs) > 1:
		return strategy.Document{}, fmt.Errorf("%w: one document wanted, have %d", strategy.ErrValue, len(docs))
	}
	return docs[0], nil
}

// problemsOf are the errors of decoding, or, where it went well, those of the values, with their lines.
func problemsOf(key string, doc strategy.Document, wrong []strategy.FieldError, err error) []Problem {
	var out []Problem
	for _, e := range split(err) {
		var f strategy.FieldError
		if !errors.As(e, &f) {
			f = strategy.FieldError{Err: e}
		}
		out = append(out, Problem{Key: key, Line: f.Line, Path: f.Path, Err: f.Err})
	}
	for _, f := range wrong[:min(len(wrong), maxProblems)] {
		out = append(out, Problem{Key: key, Line: doc.LineOf(f.Path), Path: f.Path, Err: f.Err})
	}
	return out
}

// split undoes errors.Join.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// moved rewrites paths from one prefix to another: the validators speak of a NodeSLO's spec.
func moved(errs []error, from, to string) []strategy.FieldError {
	var out []strategy.FieldError
	for _, e := range errs {
		var f strategy.FieldError
		if !errors.As(e, &f) {
			f = strategy.FieldError{Path: from, Err: e}
		}
		f.Path = strings.TrimSuffix(to+strings.TrimPrefix(f.Path, from), ".")
		out = append(out, f)
	}
	return out
}
