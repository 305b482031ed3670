package openapi

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/content"
	"github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/pb33f/libopenapi/orderedmap"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

const documentPath = "../../docs/openapi.yaml"

func TestMain(m *testing.M) { sidecar.Main(m) }

// document is docs/openapi.yaml.
type document struct {
	text      string
	model     *v3.Document
	validator validator.Validator
	schemas   schema_validation.SchemaValidator
}

// load reads the document; it fails the test if it cannot be understood.
func load(t *testing.T) *document {
	t.Helper()
	text, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) *document {
	t.Helper()
	parsed, err := libopenapi.NewDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	model, err := parsed.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	whole := content.DecoderFunc(func(in *content.DecodeInput) (any, error) {
		body, err := io.ReadAll(in.Body)
		return string(body), err
	})
	options := []config.Option{
		config.WithFormatAssertions(), config.WithStandardBodyDecoders(),
		config.WithRejectUnsupportedBodyContent(), config.WithRejectUndeclaredRequestBody(),
		config.WithBodyDecoder("text/plain", whole), config.WithBodyDecoder("text/event-stream", whole),
		config.WithBodyDecoder("text/html", whole),
	}
	v, errs := validator.NewValidator(parsed, options...)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return &document{text, &model.Model, v, schema_validation.NewSchemaValidator(config.WithFormatAssertions())}
}

// operation is one method of one path.
type operation struct {
	*v3.Operation
	method, path string
	admin        bool // on the admin door
}

// operations returns all that the document has.
func (d *document) operations() (all []operation) {
	for path, item := range d.model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			all = append(all, operation{op, strings.ToUpper(method), path, len(item.Servers) > 0})
		}
	}
	return all
}

// find returns the operation that a request is for; one without an Operation
// if the document has none. A key is spelled with its slashes encoded.
func (d *document) find(method, path string) operation {
	path, _, _ = strings.Cut(path, "?")
	if key, ok := strings.CutPrefix(path, "/locks/"); ok && !strings.Contains(key, "/") {
		path = "/locks/{key}"
	}
	for _, op := range d.operations() {
		if op.method == method && op.path == path {
			return op
		}
	}
	return operation{}
}

// response returns what the operation answers with that status, and how the
// document writes that; nil if it is not there.
func (op operation) response(status int) (string, *v3.Response) {
	for _, code := range []string{fmt.Sprint(status), fmt.Sprint(status/100) + "XX"} {
		if r := at(op.Responses.Codes, code); r != nil {
			return code, r
		}
	}
	return "", nil
}

// at returns a value of one of the library's maps, which may be nil; the zero
// value if there is none.
func at[V any](m *orderedmap.Map[string, V], key string) (value V) {
	if m == nil {
		return value
	}
	return m.GetOrZero(key)
}

// fits tells what is wrong with a value that should fit a schema; "" if it fits.
func (d *document) fits(schema *base.SchemaProxy, value any) string {
	ok, errs := d.schemas.ValidateSchemaObject(schema.Schema(), value)
	if ok {
		return ""
	}
	return describe(errs)
}

func (d *document) component(name string) *base.SchemaProxy {
	return at(d.model.Components.Schemas, name)
}

// describe writes down what the library has found.
func describe(errs []*errors.ValidationError) string {
	var text strings.Builder
	for _, e := range errs {
		fmt.Fprintf(&text, "%s: %s\n", e.Message, e.Reason)
		for _, s := range e.SchemaValidationErrors {
			fmt.Fprintf(&text, "  at %s: %s\n", s.InstancePath, s.Reason)
		}
	}
	return text.String()
}

func TestTheDocumentIsValidOpenAPI(t *testing.T) {
	d := load(t)
	if d.model.Version != "3.1.0" {
		t.Errorf("version %s", d.model.Version)
	}
	if ok, errs := d.validator.ValidateDocument(); !ok {
		t.Error(describe(errs))
	}
	ids := make(map[string]bool)
	for _, op := range d.operations() {
		if op.OperationId == "" || ids[op.OperationId] || op.Summary == "" || len(op.Tags) != 1 {
			t.Errorf("%s %s: id %q, summary %q, tags %q", op.method, op.path, op.OperationId, op.Summary, op.Tags)
		}
		ids[op.OperationId] = true
	}
}

// A mistake in the document is found, so that the test above shows something.
func TestAnInvalidDocumentIsRefused(t *testing.T) {
	text := load(t).text
	for name, mistake := range map[string][2]string{
		"a parameter in no place":  {"in: query", "in: nowhere"},
		"a response without words": {"description: Granted\n", "summary: Granted\n"},
	} {
		wrong := strings.Replace(text, mistake[0], mistake[1], 1)
		if wrong == text {
			t.Fatalf("%q is not in the document", mistake[0])
		}
		if ok, _ := parse(t, wrong).validator.ValidateDocument(); ok {
			t.Errorf("%s: valid", name)
		}
	}
}

// unreferenced are the components that no operation refers to: they describe
// answers to what is no operation.
var unreferenced = []string{"NotFound", "MethodNotAllowed", "HeaderTooLarge", "TooManyConnections"}

func TestEveryComponentIsUsed(t *testing.T) {
	d := load(t)
	c := d.model.Components
	for kind, names := range map[string][]string{
		"schemas": slices.Collect(c.Schemas.KeysFromOldest()), "responses": slices.Collect(c.Responses.KeysFromOldest()),
		"parameters": slices.Collect(c.Parameters.KeysFromOldest()), "headers": slices.Collect(c.Headers.KeysFromOldest()),
		"examples": slices.Collect(c.Examples.KeysFromOldest()),
	} {
		for _, name := range names {
			if !slices.Contains(unreferenced, name) && !strings.Contains(d.text, "'#/components/"+kind+"/"+name+"'") {
				t.Errorf("components.%s.%s is not used", kind, name)
			}
		}
	}
}
