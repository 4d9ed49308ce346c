"""Named tuples of arrays that compiled code hands on as one pointer.

numba hands on each part of a named tuple by itself, seven for an array. Of the tables of a turn that would be
more than 200 arguments for each of its routines, and most of what there is to compile.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)


class TablesType(types.Type):
    """Of a NamedTuple ``instance_class``, by the types of its fields, in order."""

    def __init__(self, instance_class: Any, members: tuple[types.Type, ...]) -> None:
        self.instance_class = instance_class
        self.members = members
        super().__init__(f"{instance_class.__name__}({', '.join(map(str, members))})")


def tables_type(instance_class: Any, members: tuple[types.Type, ...]) -> TablesType:
    """The type that all instances of a NamedTuple have for kernels, which take them and read their fields."""
    tables = TablesType(instance_class, members)
    typeof_impl.register(instance_class)(lambda value, context: tables)
    return tables


def _fields(context: Any, tables: TablesType) -> ir.Type:
    return ir.LiteralStructType([context.get_value_type(member) for member in tables.members])


@register_model(TablesType)
class _TablesModel(models.PrimitiveModel):
    """Memory of whoever was given the instance by Python, while it runs."""

    def __init__(self, manager: Any, tables: TablesType) -> None:
        super().__init__(manager, tables, cgutils.voidptr_t)


@infer_getattr
class _TablesFields(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, tables, name):  # type: ignore[no-untyped-def, override]
        names = tables.instance_class._fields
        return tables.members[names.index(name)] if name in names else None


@lower_getattr_generic(TablesType)
def _load_field(context, builder, tables, pointer, name):  # type: ignore[no-untyped-def]
    index = tables.instance_class._fields.index(name)
    memory = builder.bitcast(pointer, _fields(context, tables).as_pointer())
    value = builder.load(cgutils.gep_inbounds(builder, memory, 0, index))
    # Whatever is stored meanwhile: it need not be loaded again.
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return impl_ret_borrowed(context, builder, tables.members[index], value)


@unbox(TablesType)
def _unbox_tables(tables, instance, c):  # type: ignore[no-untyped-def]
    memory = cgutils.alloca_once(c.builder, _fields(c.context, tables))
    is_error = cgutils.alloca_once_value(c.builder, cgutils.false_bit)
    values, cleanups = [], []
    for index, member in enumerate(tables.members):
        native = c.unbox(member, c.pyapi.tuple_getitem(instance, index))
        c.builder.store(native.value, cgutils.gep_inbounds(c.builder, memory, 0, index))
        with c.builder.if_then(native.is_error, likely=False):
            c.builder.store(cgutils.true_bit, is_error)
        values.append((member, native.value))
        if native.cleanup is not None:
            cleanups.append(native.cleanup)

    def clean_up() -> None:
        for cleanup in reversed(cleanups):
            cleanup()
        if c.context.enable_nrt:  # else nothing is counted
            for member, value in values:
                c.context.nrt.decref(c.builder, member, value)

    # From here on it does not change, nor is it known to be the memory that just did: loads are invariant.
    same = ir.FunctionType(cgutils.voidptr_t, [cgutils.voidptr_t])
    pointer = c.builder.bitcast(memory, cgutils.voidptr_t)
    pointer = c.builder.asm(same, "", "=r,0,~{memory}", [pointer], side_effect=True)
    return NativeValue(pointer, is_error=c.builder.load(is_error), cleanup=clean_up)
